"""The parts of the loads of `kourou bench` that need no broker: options, messages, plans, checks, workers."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from click.testing import CliRunner

from kourou.cli.bench.latency import LatencyBench
from kourou.cli.bench.messages import Compression, MessageMaker, Shape, Target
from kourou.cli.bench.transaction import BATCH, NUMBER, PLAN, Checks, TransactionBench, make_plan
from kourou.cli.bench.workers import Workers, share_of
from kourou.cli.main import app
from kourou.client.core.transaction_state import TransactionState
from kourou.errors import ConfigError
from kourou.protocol.compression import CompressionType
from kourou.protocol.message import MessageExt
from kourou.protocol.properties import MessageConst, encode_properties

TARGET = Target(topic="T")
# Nobody listens there: the command prints its parameters and ends.
NOBODY = ["-n", "127.0.0.1:1"]


def first_lines(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["bench", *arguments, *NOBODY])
    assert result.exit_code == 1
    assert result.stderr.startswith(f"kourou bench {arguments[0]}: ") and result.stderr.count("\n") == 1
    return result.stdout


# -- options -------------------------------------------------------------------------------------


def test_defaults_of_the_producer_are_apaches() -> None:
    assert first_lines("producer") == (
        "topic: BenchmarkTest, threadCount: 64, messageSize: 128, keyEnable: false, propertySize: 0, "
        "tagCount: 0, traceEnable: false, aclEnable: false, messageQuantity: 0, delayEnable: false, "
        "delayLevel: 1, asyncEnable: false\n compressEnable: false, reportInterval: 1000\n"
    )


SHORT = "-t A -w 3 -s 9 -k true -l 2 -q 7 -d true -e 4 -c true -ct LZ4 -cl 3 -ch 10 -m true -a TRUE -ri 50"
LONG = (
    "--topic A --threadCount 3 --messageSize 9 --keyEnable true --tagCount 2 --messageQuantity 7 "
    "--delayEnable true --delayLevel 4 --compressEnable true --compressType lz4 --compressLevel 3 "
    "--compressOverHowMuch 10 --msgTraceEnable true --aclEnable true --reportInterval 50"
)


@pytest.mark.parametrize("words", [SHORT, LONG, SHORT + " -ak a -sk b"])
def test_options_of_the_producer_have_apaches_names(words: str) -> None:
    assert first_lines("producer", *words.split()) == (
        "topic: A, threadCount: 3, messageSize: 9, keyEnable: true, propertySize: 0, tagCount: 2, "
        "traceEnable: true, aclEnable: true, messageQuantity: 7, delayEnable: true, delayLevel: 4, "
        "asyncEnable: false\n compressEnable: true, reportInterval: 50\n"
    )


def test_an_asynchronous_producer_has_one_thread() -> None:
    shown = first_lines("producer", "-y", "true", "-w", "8")
    assert "threadCount: 1," in shown and "asyncEnable: true" in shown


def test_defaults_of_the_others_are_apaches(tmp_path: Path) -> None:
    consumer = first_lines("consumer")
    assert "topic: BenchmarkTest, threadCount: 20, group: benchmark_consumer, filterType: TAG" in consumer
    transaction = first_lines("transaction")
    assert "topic: BenchmarkTest, threadCount: 32, messageSize: 2048, " in transaction
    assert "sendRollbackRate: 0.0, sendUnknownRate: 0.0, checkRollbackRate: 0.0" in transaction
    batch = first_lines("batch")
    assert "threadCount: 64, messageSize: 128, batchSize: 16, keyEnable: false, propertySize: 0" in batch
    assert "rate: 1000, messageSize: 128" in first_lines("latency")


def test_the_expression_of_a_consumer_comes_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "expression"
    path.write_text("a > 5\n")
    shown = first_lines("consumer", "-f", "sql92", "-e", str(path), "-g", "G", "-p", "true", "-r", "0.5")
    assert "group: G_" in shown and "filterType: SQL92, expression: a > 5, failRate: 0.5" in shown


@pytest.mark.parametrize(
    ("arguments", "code", "error"),
    [
        (["consumer", "-e", "/nowhere/at/all"], 1, "-e /nowhere/at/all: cannot be read: No such file"),
        (["latency", "-s", "4"], 2, "-s 4: must be 8 or more"),
        (["producer", "-k", "maybe"], 2, "'maybe'"),
        (["producer", "-w", "0"], 2, "'-w' / '--threadCount'"),
        (["producer", "-a", "true", "-ak", ""], 2, "-a true needs -ak and -sk"),
    ],
)
def test_a_wrong_option_is_one_line(arguments: list[str], code: int, error: str) -> None:
    result = CliRunner().invoke(app, ["bench", *arguments, *NOBODY])
    assert (result.exit_code, result.stderr.count("\n")) == (code, 1)
    assert error in result.stderr and result.stderr.startswith(f"kourou bench {arguments[0]}: ")


# -- messages ------------------------------------------------------------------------------------


def test_messages_have_the_shape_that_was_asked_for() -> None:
    shape = Shape(size_bytes=100, with_key=True, tag_count=1, property_bytes=40, delay_level=3)
    message = MessageMaker("T", shape).make()
    assert (message.topic, len(message.body), message.tags, message.delay_time_level) == ("T", 100, "tag0", 3)
    assert len(message.keys) == 1 and message.keys[0].isdigit()
    own = {name: value for name, value in message.properties.items() if name.startswith("p")}
    assert sum(len(name) + len(value) for name, value in own.items()) == 40


def test_a_plain_message_has_nothing_but_its_body() -> None:
    message = MessageMaker("T", Shape(size_bytes=5)).make()
    assert (len(message.body), dict(message.properties)) == (5, {})


def test_nothing_is_compressed_unless_asked_for() -> None:
    assert Compression().producer_options() == {"compress_over_bytes": 2**31 - 1}
    asked = Compression(enabled=True, kind=CompressionType.ZSTD, level=3, over_bytes=7)
    assert asked.producer_options() == {
        "compression": CompressionType.ZSTD,
        "compress_level": 3,
        "compress_over_bytes": 7,
    }


def test_a_body_too_short_for_a_time_is_refused() -> None:
    with pytest.raises(ConfigError, match="-s 7: must be 8 or more"):
        LatencyBench(target=TARGET, size_bytes=7)


# -- transactions --------------------------------------------------------------------------------


def bench_with(**rates: float) -> TransactionBench:
    return TransactionBench(target=TARGET, batch_id=1, **rates)  # type: ignore[arg-type]


def test_a_plan_ends_with_an_outcome_or_after_twenty_checks() -> None:
    rng = random.Random(1)
    assert make_plan(bench_with(), rng) == "C"
    assert make_plan(bench_with(send_rollback_rate=1), rng) == "R"
    assert make_plan(bench_with(send_unknown_rate=1), rng) == "UC"
    assert make_plan(bench_with(send_unknown_rate=1, check_rollback_rate=1), rng) == "UR"
    assert make_plan(bench_with(send_unknown_rate=1, check_unknown_rate=1), rng) == "U" * 21


def half(plan: str, times: int, number: int = 1, batch: str = "1") -> MessageExt:
    properties = {PLAN: plan, BATCH: batch, NUMBER: str(number)}
    properties[MessageConst.PROPERTY_TRANSACTION_CHECK_TIMES] = str(times)
    raw = encode_properties(properties).encode()
    fields = (0, 0, 0, 0, 0, 0, 0, 0, 0, bytes(8), 0, bytes(8), 0, 0, b"x", "T", raw)
    return MessageExt(*fields)  # type: ignore[arg-type]


def test_checks_are_answered_by_the_plan() -> None:
    checks = Checks(1)
    assert checks.answer(half("UUC", 1)) is TransactionState.UNKNOWN
    assert checks.answer(half("UUC", 2)) is TransactionState.COMMIT
    assert checks.answer(half("UR", 1, number=2)) is TransactionState.ROLLBACK
    assert (checks.count, checks.unexpected, checks.duplicated) == (3, 0, 0)


def test_checks_that_should_not_have_come_are_found(capsys: pytest.CaptureFixture[str]) -> None:
    checks = Checks(1)
    assert checks.answer(half("C", 1)) is TransactionState.COMMIT
    assert "unexpected check: msgId=" in capsys.readouterr().out
    checks.answer(half("UC", 1, number=2))
    checks.answer(half("UC", 1, number=2))
    assert (checks.count, checks.unexpected, checks.duplicated) == (3, 1, 1)


def test_transactions_of_an_earlier_run_are_rolled_back_and_not_counted() -> None:
    checks = Checks(1)
    assert checks.answer(half("UC", 1, batch="0")) is TransactionState.ROLLBACK
    assert checks.count == 0


# -- workers -------------------------------------------------------------------------------------


def test_shares_add_up_to_the_quantity() -> None:
    assert [share_of(10, 4, number) for number in range(4)] == [3, 3, 2, 2]
    assert share_of(0, 4, 1) is None


def test_workers_end_when_one_fails() -> None:
    def work(number: int) -> None:
        if number == 0:
            raise KeyError("broken")
        workers.stopping.wait(30)

    workers = Workers(3, work)
    workers.start()
    assert workers.wait(30)
    with pytest.raises(KeyError, match="broken"):
        workers.finish()


def test_the_error_of_a_worker_that_fails_before_it_is_ready_is_raised() -> None:
    def work(number: int) -> None:
        raise KeyError("broken")

    workers = Workers(1, work)
    workers.start()
    with pytest.raises(KeyError, match="broken"):
        workers.wait_ready()
