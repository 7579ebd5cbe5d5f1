"""What an idempotent producer makes of answers, and of their absence: which sequence it sends where."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from kourou.client.core.credentials import Credentials
from kourou.client.core.transaction_state import TransactionState
from kourou.client.transactions.transaction_producer import AsyncTransactionProducer
from kourou.errors import (
    ClientError,
    ClientStateError,
    MessageRefusedError,
    PartlySentError,
    ProducerFencedError,
    ResponseError,
    SendFailedError,
    SequenceRefusedError,
    SequenceTooOldError,
    UnknownProducerError,
)
from kourou.protocol.bodies import MessageQueue
from kourou.protocol.codes import ResponseCode
from kourou.protocol.message import Message
from kourou.protocol.producer_sequence import MAX_IN_FLIGHT
from kourou.transport.request import Request
from tests.e2e.client.kit.opened_broker import opened
from tests.e2e.client.kit.producer_kit import TOPIC, producing
from tests.e2e.client.kit.scripted_broker import refused, silent, stored

pytestmark = pytest.mark.e2e

QUEUE = MessageQueue(TOPIC, "scripted", 0)
FIRST, SECOND = "0" * 16, "0" * 15 + "1"
QUICK = {"attempt_timeout_ms": 100}
UNKNOWN = refused(ResponseCode.KOUROU_UNKNOWN_PRODUCER, "expired")
FENCED = refused(ResponseCode.KOUROU_PRODUCER_FENCED, "a newer one is open")
JUMP = refused(ResponseCode.KOUROU_SEQUENCE_JUMP, "too far ahead")
BUSY = refused(ResponseCode.SYSTEM_BUSY, "busy")


def lost(request: Request) -> None:
    """The connection ends in place of an answer."""
    request.connection.close("a test")


# -- numbering -----------------------------------------------------------------------------------------


async def test_messages_count_from_0_in_each_queue() -> None:
    async with opened(stored()) as broker, producing(broker.address, idempotent=True) as producer:
        message = Message(TOPIC, b"x")
        for _ in range(4):
            await producer.send(message)  # the same object: each send is a new message
        assert sorted((queue, values[0]) for queue, values in broker.sent) == [
            (0, f"{FIRST}:0:0"),
            (0, f"{FIRST}:0:1"),
            (1, f"{FIRST}:0:0"),
            (1, f"{FIRST}:0:1"),
        ]
        assert len(broker.opens) == 1
        assert "__KOUROU_SEQ" not in message.properties


async def test_many_first_sends_open_one_session_and_keep_their_order() -> None:
    async with opened(stored()) as broker, producing(broker.address, idempotent=True) as producer:
        await asyncio.gather(
            *(producer.send_nowait(Message(TOPIC, b"%d" % n), queue=QUEUE) for n in range(50))
        )
        assert broker.values == [f"{FIRST}:0:{n}" for n in range(50)]
        assert [request.body for request in broker.scripted.sends] == [b"%d" % n for n in range(50)]
        assert len(broker.opens) == 1


@pytest.mark.parametrize("options", [{"idempotent": True}, {"name": "loader"}])
async def test_attempts_to_open_share_a_nonce_and_openings_do_not(options: dict[str, Any]) -> None:
    async with (
        opened(stored(), UNKNOWN, stored()) as broker,
        producing(broker.address, **options) as producer,
    ):
        broker.lost_opens = 2
        await producer.send(Message(TOPIC, b"x"), queue=QUEUE)
        assert len(broker.opens) == 3 and len({header.kourou_nonce for header in broker.opens}) == 1
        await producer.send(Message(TOPIC, b"x"), queue=QUEUE)  # the broker has forgotten the producer
        assert len(broker.opens) == 4 and len({header.kourou_nonce for header in broker.opens}) == 2


async def test_each_message_of_a_batch_has_a_sequence() -> None:
    async with opened(stored()) as broker, producing(broker.address, idempotent=True) as producer:
        await producer.send_many([Message(TOPIC, b"%d" % n) for n in range(3)], queue=QUEUE)
        await producer.send_many([Message(TOPIC, b"%d" % n) for n in range(600)], queue=QUEUE)
        assert [len(values) for _, values in broker.sent] == [3, 256, 256, 88]
        assert broker.values == [f"{FIRST}:0:{n}" for n in range(603)]


async def test_a_queue_takes_batches_of_its_own_topic_only() -> None:
    async with opened(stored()) as broker:
        for options in ({}, {"idempotent": True}):
            async with producing(broker.address, **options) as producer:
                with pytest.raises(MessageRefusedError, match="for topic 'Other'"):
                    await producer.send_many([Message(TOPIC, b"1"), Message("Other", b"2")], queue=QUEUE)
                with pytest.raises(TypeError, match="send_many takes Messages"):
                    await producer.send_many([b"1"], queue=QUEUE)  # type: ignore[list-item]
                assert await producer.send_many([], queue=QUEUE) == []
        assert not broker.sent


async def test_a_signed_send_has_its_sequence_too() -> None:
    options = {"idempotent": True, "credentials": Credentials("ak", "sk")}
    async with opened(stored()) as broker, producing(broker.address, **options) as producer:
        await producer.send(Message(TOPIC, b"x"))
        assert broker.values == [f"{FIRST}:0:0"]


async def test_a_forwarded_message_gets_a_sequence_of_its_own() -> None:
    async with opened(stored()) as broker, producing(broker.address, idempotent=True) as producer:
        message = Message(TOPIC, b"x", properties={"__KOUROU_SEQ": "@other:3:17", "mine": "1"})
        await producer.send(message, queue=QUEUE)
        await producer.send_many([message, message], queue=QUEUE)
        assert broker.values == [f"{FIRST}:0:{n}" for n in range(3)]
        (text,) = [
            request.ext_fields["i"] for request in broker.scripted.sends if "mine" in request.ext_fields["i"]
        ]
        assert text.count("__KOUROU_SEQ") == 1


async def test_replies_and_ordinary_producers_carry_no_sequence() -> None:
    async with opened(stored()) as broker:
        async with producing(broker.address) as producer:
            await producer.send(Message(TOPIC, b"x"))
        assert broker.values == [None] and not broker.opens


async def test_half_messages_are_numbered() -> None:
    async def check(_: object) -> TransactionState:
        return TransactionState.COMMIT

    async with opened(lost, stored()) as broker:
        async with AsyncTransactionProducer(
            "tx", namesrv=broker.address, check=check, idempotent=True
        ) as producer:
            with pytest.raises(RuntimeError):
                async with producer.transaction(Message(TOPIC, b"x")):
                    raise RuntimeError("the block rolls back")
        assert broker.values == [f"{FIRST}:0:0"] * 2
        assert len({queue for queue, _ in broker.sent}) == 1


# -- retries -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "undecided",
    [
        lost,
        silent,
        refused(ResponseCode.SERVICE_NOT_AVAILABLE, "the disk failed"),
        refused(ResponseCode.SYSTEM_ERROR, "a bug"),
    ],
)
async def test_an_undecided_attempt_is_repeated_to_its_queue_until_it_is_decided(undecided: object) -> None:
    answers = [undecided, undecided, undecided, BUSY, undecided, stored()]
    async with (
        opened(*answers) as broker,  # type: ignore[arg-type]
        producing(broker.address, idempotent=True, send_timeout_ms=20_000, **QUICK) as producer,
    ):
        await producer.send(Message(TOPIC, b"x"))
        assert len(set(map(str, broker.sent))) == 1 and len(broker.sent) == 6
        assert len(broker.opens) == 1


async def test_a_definite_refusal_frees_a_message_for_another_queue() -> None:
    async with opened(BUSY, stored()) as broker, producing(broker.address, idempotent=True) as producer:
        await producer.send(Message(TOPIC, b"x"))
        assert broker.values == [f"{FIRST}:0:0"] * 2
        assert len({queue for queue, _ in broker.sent}) == 2
        await producer.send_many(
            [Message(TOPIC, b"y")], queue=MessageQueue(TOPIC, "scripted", broker.sent[0][0])
        )
        # The number of the refused attempt is not used again.
        assert broker.values[-1] == f"{FIRST}:0:1"


async def test_a_chosen_queue_is_tried_until_the_timeout() -> None:
    async with (
        opened(*[BUSY] * 5, stored()) as broker,
        producing(broker.address, idempotent=True, send_timeout_ms=20_000) as producer,
    ):
        await producer.send(Message(TOPIC, b"x"), queue=QUEUE)
        assert broker.sent == [(0, [f"{FIRST}:0:0"])] * 6


async def test_a_batch_is_repeated_with_its_sequences() -> None:
    async with opened(lost, stored()) as broker, producing(broker.address, idempotent=True) as producer:
        await producer.send_many([Message(TOPIC, b"1"), Message(TOPIC, b"2")])
        assert broker.sent[0] == broker.sent[1]
        assert broker.scripted.sends[0].body == broker.scripted.sends[1].body


async def test_a_broker_whose_disk_is_full_has_stored_nothing() -> None:
    full = refused(ResponseCode.KOUROU_DISK_FULL, "the disk is full")
    async with opened(full, stored()) as broker, producing(broker.address, idempotent=True) as producer:
        with pytest.raises(SendFailedError, match="the disk is full") as caught:
            await producer.send(Message(TOPIC, b"x"), queue=QUEUE)
        assert not caught.value.may_be_stored and len(broker.sent) == 1
        broker.scripted.answers = [full, stored()]
        await producer.send(Message(TOPIC, b"y"))
        assert sorted(queue for queue, _ in broker.sent[1:]) == [0, 1]


async def test_a_refusal_that_stored_nothing_is_repeated_in_a_queue_that_was_chosen() -> None:
    no = refused(ResponseCode.KOUROU_NOT_STORED, "the store is shut down")
    async with opened(no, no, stored()) as broker, producing(broker.address, idempotent=True) as producer:
        await producer.send(Message(TOPIC, b"x"), queue=QUEUE)
        assert broker.values == [f"{FIRST}:0:0"] * 3
        broker.scripted.answers = [no]
        with pytest.raises(SendFailedError) as caught:
            await producer.send(Message(TOPIC, b"x"), queue=QUEUE, timeout_ms=300)
        assert not caught.value.may_be_stored


async def test_an_undecided_send_ends_with_an_error_that_says_so_and_can_be_continued() -> None:
    async with (
        opened(silent) as broker,
        producing(broker.address, idempotent=True, **QUICK) as producer,
    ):
        await producer.last_sequence(QUEUE)  # opened: 250 ms are for the send alone
        with pytest.raises(SendFailedError, match="may be stored: producer.send_again") as caught:
            await producer.send(Message(TOPIC, b"x"), queue=QUEUE, timeout_ms=250)
        assert caught.value.may_be_stored
        # Its number stays used.
        broker.scripted.answers = [stored()]
        await producer.send(Message(TOPIC, b"y"), queue=QUEUE)
        assert broker.values[-1] == f"{FIRST}:0:1"
        broker.scripted.answers = [silent]
        with pytest.raises(SendFailedError) as again:
            await producer.send_again(caught.value, timeout_ms=250)
        broker.scripted.answers = [stored()]
        await producer.send_again(again.value)
        assert broker.sent[-1] == (0, [f"{FIRST}:0:0"]) and broker.scripted.sends[-1].body == b"x"
        with pytest.raises(ValueError, match="continued already"):
            await producer.send_again(again.value)
        assert producer.stats().in_flight == 0


async def test_a_message_that_is_not_stored_is_no_undecided_one() -> None:
    illegal = refused(ResponseCode.MESSAGE_ILLEGAL, "no")
    async with opened(illegal) as broker, producing(broker.address, idempotent=True) as producer:
        with pytest.raises(ResponseError):
            await producer.send(Message(TOPIC, b"x"))
        broker.scripted.answers = [BUSY]
        with pytest.raises(SendFailedError) as caught:
            await producer.send(Message(TOPIC, b"x"))
        assert not caught.value.may_be_stored
        with pytest.raises(ValueError, match="cannot be continued"):
            await producer.send_again(caught.value)


async def test_a_producer_that_stops_reports_undecided_sends_as_such() -> None:
    async with opened(silent) as broker:
        producer_context = producing(broker.address, idempotent=True, send_timeout_ms=300, **QUICK)
        async with producer_context as producer:
            sending = asyncio.ensure_future(producer.send(Message(TOPIC, b"x"), timeout_ms=20_000))
            while len(broker.sent) < 2:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        with pytest.raises(SendFailedError) as caught:
            await sending
        assert caught.value.may_be_stored


# -- sessions ------------------------------------------------------------------------------------------


async def test_an_expired_producer_is_opened_anew() -> None:
    async with opened(stored(), UNKNOWN, stored()) as broker:
        async with producing(broker.address, idempotent=True) as producer:
            for _ in range(3):
                await producer.send(Message(TOPIC, b"x"), queue=QUEUE)
        assert broker.values == [f"{FIRST}:0:0", f"{FIRST}:0:1", f"{SECOND}:0:0", f"{SECOND}:0:1"]
        assert len(broker.opens) == 2


async def test_the_fate_of_an_undecided_message_of_an_expired_producer_is_unknown() -> None:
    async with opened(lost, UNKNOWN, stored()) as broker:
        async with producing(broker.address, idempotent=True) as producer:
            with pytest.raises(UnknownProducerError, match="an earlier attempt may have stored") as caught:
                await producer.send(Message(TOPIC, b"x"))
            assert caught.value.may_be_stored
            await producer.send(Message(TOPIC, b"y"))
        assert broker.values[-1] == f"{SECOND}:0:0"


async def test_a_broker_that_forgets_every_session_is_an_error() -> None:
    async with opened(UNKNOWN) as broker, producing(broker.address, idempotent=True) as producer:
        with pytest.raises(UnknownProducerError) as caught:
            await producer.send(Message(TOPIC, b"x"))
        assert not caught.value.may_be_stored and len(broker.opens) == 3


async def test_a_broker_that_lost_messages_does_not_stop_the_producer() -> None:
    """A slave without the last messages has become master: the next sequence is a jump there."""
    async with opened(stored(), JUMP, stored()) as broker:
        async with producing(broker.address, idempotent=True) as producer:
            await producer.send(Message(TOPIC, b"1"))
            await producer.send(Message(TOPIC, b"2"))
        assert broker.values[-1] == f"{SECOND}:0:0"


async def test_many_failures_in_a_row_end_in_a_new_session_not_in_a_stuck_producer() -> None:
    async with opened(refused(ResponseCode.MESSAGE_ILLEGAL)) as broker:
        async with producing(broker.address, idempotent=True) as producer:
            for count in [200] * (MAX_IN_FLIGHT // 200) + [MAX_IN_FLIGHT % 200]:
                sends = [producer.send(Message(TOPIC, b"x"), queue=QUEUE) for _ in range(count)]
                await asyncio.gather(*sends, return_exceptions=True)
            assert broker.values[-1] == f"{FIRST}:0:{MAX_IN_FLIGHT - 1}"
            broker.scripted.answers = [stored()]
            await producer.send(Message(TOPIC, b"x"), queue=QUEUE)
        assert broker.values[-1] == f"{SECOND}:0:0"
        assert len(broker.opens) == 2


async def test_no_more_than_a_thousand_sends_of_a_queue_are_ahead_of_an_undecided_one() -> None:
    held: list[Request] = []
    async with opened(held.append) as broker:
        async with producing(broker.address, idempotent=True, send_timeout_ms=20_000) as producer:
            sends = [producer.send_nowait(Message(TOPIC, b"%d" % n), queue=QUEUE) for n in range(1_500)]
            while len(held) < 1_000:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            other = producer.send_nowait(Message(TOPIC, b"y"), queue=MessageQueue(TOPIC, "scripted", 1))
            while len(held) < 1_001:  # noqa: ASYNC110 (another queue is not held up)
                await asyncio.sleep(0.01)
            broker.scripted.answers = [stored()]
            for request in held:
                stored()(request)
            await asyncio.gather(*sends, other)
        assert [values[0] for queue, values in broker.sent if queue == 0] == [
            f"{FIRST}:0:{n}" for n in range(1_500)
        ]


async def test_a_send_that_never_gets_room_says_why() -> None:
    async with opened(silent) as broker:
        async with producing(broker.address, idempotent=True, send_timeout_ms=2_000) as producer:
            sends = [producer.send_nowait(Message(TOPIC, b"x"), queue=QUEUE) for _ in range(1_000)]
            with pytest.raises(SendFailedError, match="too many sends before it are undecided") as caught:
                await producer.send(Message(TOPIC, b"x"), queue=QUEUE, timeout_ms=200)
            assert not caught.value.may_be_stored
            for send in sends:
                send.cancel()


async def test_too_old_a_sequence_is_an_error_of_its_own() -> None:
    too_old = refused(ResponseCode.KOUROU_SEQUENCE_TOO_OLD, "below the window")
    async with opened(too_old) as broker, producing(broker.address, idempotent=True) as producer:
        with pytest.raises(SequenceTooOldError, match="below the window") as caught:
            await producer.send(Message(TOPIC, b"x"))
        assert caught.value.may_be_stored and isinstance(caught.value, SequenceRefusedError)
        assert len(broker.sent) == 1


async def test_a_broker_of_another_kind_gets_ordinary_sends(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        async with opened(lost, stored(), is_supported=False) as broker:
            async with producing(broker.address, idempotent=True) as producer:
                for _ in range(3):
                    await producer.send(Message(TOPIC, b"x"))
                await producer.send_many([Message(TOPIC, b"x")] * 2)
                with pytest.raises(ClientError, match="does not support idempotent producers"):
                    await producer.last_sequence(QUEUE)
            assert set(broker.values) == {None} and not broker.opens
    lines = [record.message for record in caplog.records if "at least once" in record.message]
    assert len(lines) == 1 and "broker scripted does not support idempotent producers" in lines[0]


async def test_a_cluster_of_both_kinds_gets_both_kinds_of_sends() -> None:
    async with opened(stored(), is_supported=False) as other, opened(stored()) as broker:
        broker.beside["other"] = other.address
        async with producing(broker.address, idempotent=True, **QUICK) as producer:
            for _ in range(8):
                await producer.send(Message(TOPIC, b"x"))
            assert other.values == [None] * 4
            assert sorted(map(str, broker.values)) == sorted([f"{FIRST}:0:0", f"{FIRST}:0:1"] * 2)
            # A message that the other refuses goes on with a sequence, one that it may have as well.
            other.scripted.answers = [BUSY, lost, stored()]
            for _ in range(4):
                await producer.send(Message(TOPIC, b"x"))
            assert set(other.values) == {None} and None not in broker.values
            # And the reverse: a definite refusal takes the sequence away.
            broker.scripted.answers = [BUSY]
            count = len(other.values)
            for _ in range(2):
                await producer.send(Message(TOPIC, b"x"))
            assert set(other.values[count:]) == {None}


async def test_a_broker_that_is_upgraded_gets_sequences_after_its_restart() -> None:
    async with opened(stored(), is_supported=False) as broker:
        async with producing(broker.address, idempotent=True) as producer:
            await producer.send(Message(TOPIC, b"x"))
            broker.is_supported = True
            broker.scripted.answers = [lost, stored()]
            await producer.send(Message(TOPIC, b"x"))
        assert broker.values == [None, None, f"{FIRST}:0:0"]


# -- names ---------------------------------------------------------------------------------------------


async def test_a_named_producer_continues_behind_its_last_sequence() -> None:
    async with opened(stored()) as broker:
        broker.lasts = {0: 41}
        async with producing(broker.address, name="loader-7") as producer:
            await producer.send(Message(TOPIC, b"x"), queue=QUEUE)
            await producer.send(Message(TOPIC, b"x"), queue=MessageQueue(TOPIC, "scripted", 1))
            assert await producer.last_sequence(QUEUE) == 41
            assert await producer.last_sequence(MessageQueue(TOPIC, "scripted", 1)) == -1
        assert broker.values == ["@loader-7:0:42", "@loader-7:0:0"]
        assert [(each.kourou_name, each.kourou_allows_gaps) for each in broker.opens] == [("loader-7", False)]


async def test_namespaces_do_not_share_names() -> None:
    async with opened(stored()) as broker:
        async with producing(broker.address, name="loader", namespace="shop") as producer:
            await producer.send(Message(TOPIC, b"x"))
        assert broker.opens[0].kourou_name == "shop.loader"
    with pytest.raises(ValueError, match="producer name"):
        async with producing("127.0.0.1:1", name="x" * 60, namespace="shop"):
            pass


async def test_a_fenced_producer_sends_nothing_more() -> None:
    async with opened(stored(), FENCED, stored()) as broker:
        async with producing(broker.address, name="loader") as producer:
            await producer.send(Message(TOPIC, b"x"))
            with pytest.raises(
                ProducerFencedError, match="another program has opened the producer name 'loader'"
            ):
                await producer.send(Message(TOPIC, b"x"))
            for call in (
                producer.send(Message(TOPIC, b"x")),
                producer.send_nowait(Message(TOPIC, b"x")),
                producer.send_many([Message(TOPIC, b"x")] * 300, queue=QUEUE),
            ):
                with pytest.raises(ProducerFencedError, match="give each its own name"):
                    await call
        assert len(broker.sent) == 2 and len(broker.opens) == 1


async def test_a_producer_that_is_fenced_between_its_batches_says_so() -> None:
    messages = [Message(TOPIC, b"x")] * 700
    options = {"name": "copy", "explicit_sequences": True}
    async with opened(FENCED) as broker, producing(broker.address, **options) as producer:
        with pytest.raises(ProducerFencedError):
            await producer.send_many(messages, queue=QUEUE, sequences=range(700))
        assert len(broker.sent) == 1
    async with opened(stored(), FENCED) as broker, producing(broker.address, **options) as producer:
        with pytest.raises(PartlySentError, match="444 of 700 messages were not stored") as caught:
            await producer.send_many(messages, queue=QUEUE, sequences=range(700))
        assert isinstance(caught.value.__cause__, ProducerFencedError)
    # Undecided, then fenced: what may be stored is listed.
    async with opened(lost, FENCED) as broker, producing(broker.address, **options) as producer:
        with pytest.raises(PartlySentError) as caught:
            await producer.send_many(messages, queue=QUEUE, sequences=range(700))
        assert isinstance(caught.value.__cause__, ProducerFencedError)
        first = caught.value.results[0]
        assert isinstance(first, ProducerFencedError) and first.may_be_stored


# -- explicit sequences --------------------------------------------------------------------------------


async def test_the_application_may_number_its_messages() -> None:
    async with opened(stored()) as broker:
        async with producing(broker.address, name="copy", explicit_sequences=True) as producer:
            await producer.send(Message(TOPIC, b"x"), queue=QUEUE, sequence=7_000)
            await producer.send_nowait(Message(TOPIC, b"x"), queue=QUEUE, sequence=9_000)
            messages = [Message(TOPIC, b"%d" % n) for n in range(300)]
            await producer.send_many(messages, queue=QUEUE, sequences=range(10_000, 10_600, 2))
        assert broker.opens[0].kourou_allows_gaps
        numbers = [int(str(value).rpartition(":")[2]) for value in broker.values]
        assert numbers == [7_000, 9_000, *range(10_000, 10_600, 2)]


async def test_nothing_is_sent_behind_a_batch_that_failed() -> None:
    illegal = refused(ResponseCode.MESSAGE_ILLEGAL, "no")
    async with opened(stored(), illegal, stored()) as broker:
        async with producing(broker.address, name="copy", explicit_sequences=True) as producer:
            messages = [Message(TOPIC, b"%d" % n) for n in range(700)]
            with pytest.raises(PartlySentError) as caught:
                await producer.send_many(messages, queue=QUEUE, sequences=range(700))
        assert len(broker.sent) == 2
        kinds = [type(result).__name__ for result in caught.value.results]
        assert kinds == ["SendResult"] * 256 + ["ResponseError"] * 256 + ["SendFailedError"] * 188


async def test_wrong_uses_are_refused_before_anything_is_sent() -> None:
    message = Message(TOPIC, b"x")
    async with opened(stored()) as broker:
        async with producing(broker.address, name="copy", explicit_sequences=True) as producer:
            with pytest.raises(MessageRefusedError, match="with a queue and a sequence"):
                await producer.send(message)
            with pytest.raises(MessageRefusedError, match="with a queue and a sequence"):
                await producer.request(message)
            with pytest.raises(ValueError, match="needs the queue"):
                await producer.send(message, sequence=1)
            with pytest.raises(ValueError, match="sequence is -1"):
                await producer.send(message, queue=QUEUE, sequence=-1)
            with pytest.raises(ValueError, match="at most"):
                await producer.send(message, queue=QUEUE, sequence=2**63)
            with pytest.raises(TypeError, match="sequence must be an int"):
                await producer.send(message, queue=QUEUE, sequence="7")  # type: ignore[arg-type]
            with pytest.raises(ValueError, match="2 messages have 1 sequences"):
                await producer.send_many([message, message], queue=QUEUE, sequences=[1])
            with pytest.raises(ValueError, match="must ascend"):
                await producer.send_many([message, message], queue=QUEUE, sequences=[2, 2])
            delayed = Message(TOPIC, b"x", delay_time_level=3)
            with pytest.raises(MessageRefusedError, match="in their order"):
                await producer.send_many([message, delayed, message], queue=QUEUE, sequences=[1, 2, 3])
        async with producing(broker.address, idempotent=True) as producer:
            with pytest.raises(ValueError, match="explicit_sequences=True"):
                await producer.send(message, queue=QUEUE, sequence=1)
            with pytest.raises(MessageRefusedError, match="one-way"):
                await producer.send_oneway(message)
        async with producing(broker.address) as producer:
            with pytest.raises(ClientStateError, match="needs an idempotent producer"):
                await producer.last_sequence(QUEUE)
        assert not broker.sent


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"name": "no spaces"}, "producer name 'no spaces'"),
        ({"name": ""}, "producer name ''"),
        ({"explicit_sequences": True}, "explicit_sequences needs a name"),
        ({"idempotent": True, "retry_another_broker_when_not_store_ok": True}, "stores twice"),
    ],
)
async def test_wrong_options_are_refused(options: dict[str, object], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        async with producing("127.0.0.1:1", **options):
            pass


async def test_an_explicit_sequence_needs_a_broker_that_keeps_it() -> None:
    async with opened(stored(), is_supported=False) as broker:
        async with producing(broker.address, name="copy", explicit_sequences=True) as producer:
            with pytest.raises(ClientError, match="does not support idempotent producers"):
                await producer.send(Message(TOPIC, b"x"), queue=QUEUE, sequence=1)
        assert not broker.sent
