"""`kourou bench`: load for a cluster, with the options of Apache's benchmark programs.

Parses options; the work is in bench_run.py and the load's own module, imported when it is asked for. Switches
take `true` or `false`, as Apache's do.
"""

from __future__ import annotations

import enum
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from kourou.cli.problems import run_command
from kourou.errors import ConfigError

if TYPE_CHECKING:
    from kourou.cli.bench_messages import Compression, Target
    from kourou.cli.bench_run import Limits, Load

bench_app = typer.Typer(
    name="bench",
    help="Measure a cluster: send, consume, transactions, batches, end-to-end latency.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

TOPIC: Final = "BenchmarkTest"
# Apache's BatchProducer has this, its other programs have none.
_BATCH_NAMESRV: Final = "127.0.0.1:9876"


class Switch(enum.StrEnum):
    """A switch of Apache's programs."""

    TRUE = "true"
    FALSE = "false"

    def __bool__(self) -> bool:
        return self is Switch.TRUE


class CompressType(enum.StrEnum):
    """How bodies are compressed."""

    ZLIB = "ZLIB"
    LZ4 = "LZ4"
    ZSTD = "ZSTD"


class FilterType(enum.StrEnum):
    """What a subscription's expression is."""

    TAG = "TAG"
    SQL92 = "SQL92"


class ConsumeFrom(enum.StrEnum):
    """Where a new group begins."""

    LAST = "last"
    FIRST = "first"


def _switch(*names: str, help: str) -> typer.models.OptionInfo:
    option: typer.models.OptionInfo = typer.Option(
        *names, case_sensitive=False, metavar="true|false", help=help
    )
    return option


_Namesrv = Annotated[
    str | None,
    typer.Option("-n", "--namesrvAddr", metavar="LIST", help="Name servers, host:port;host:port."),
]
_Topic = Annotated[str, typer.Option("-t", "--topic", help="Where to.")]
_Threads = Annotated[int, typer.Option("-w", "--threadCount", min=1, max=10_000, help="Threads.")]
_Size = Annotated[int, typer.Option("-s", "--messageSize", min=1, help="Bytes of a body.")]
_Key = Annotated[Switch, _switch("-k", "--keyEnable", help="Whether messages have a key: the second.")]
_Tags = Annotated[int, typer.Option("-l", "--tagCount", min=0, help="How many tags there are.")]
_Quantity = Annotated[
    int, typer.Option("-q", "--messageQuantity", min=0, help="Messages in all; 0: without end.")
]
_Trace = Annotated[Switch, _switch("-m", "--msgTraceEnable", help="Whether to write traces.")]
_Acl = Annotated[Switch, _switch("-a", "--aclEnable", help="Whether to sign requests.")]
_AccessKey = Annotated[str, typer.Option("-ak", "--accessKey", help="With -a true.")]
_SecretKey = Annotated[str, typer.Option("-sk", "--secretKey", help="With -a true.")]
_Interval = Annotated[
    int, typer.Option("-ri", "--reportInterval", min=10, help="Milliseconds from line to line.")
]
_Compress = Annotated[Switch, _switch("-c", "--compressEnable", help="Whether to compress bodies.")]
_CompressType = Annotated[
    CompressType, typer.Option("-ct", "--compressType", case_sensitive=False, help="With -c true.")
]
_CompressLevel = Annotated[int, typer.Option("-cl", "--compressLevel", min=0, max=22, help="With -c true.")]
_CompressOver = Annotated[
    int, typer.Option("-ch", "--compressOverHowMuch", min=0, help="With -c true: from this size on.")
]
_Seconds = Annotated[float, typer.Option(min=0, help="For how long; 0: without end.")]
_WarmUp = Annotated[float, typer.Option(metavar="SECONDS", min=0, help="At first, and not counted.")]
_Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON; progress goes to stderr.")]


@bench_app.command()
def producer(
    namesrv: _Namesrv = None,
    topic: _Topic = TOPIC,
    threads: _Threads = 64,
    size: _Size = 128,
    key: _Key = Switch.FALSE,
    tags: _Tags = 0,
    quantity: _Quantity = 0,
    is_async: Annotated[
        Switch, _switch("-y", "--asyncEnable", help="Whether one thread keeps many sends in flight.")
    ] = Switch.FALSE,
    in_flight: Annotated[
        int, typer.Option("--in-flight", min=1, help="With -y true: how many sends.")
    ] = 10_000,
    delay: Annotated[
        Switch, _switch("-d", "--delayEnable", help="Whether to delay messages.")
    ] = Switch.FALSE,
    delay_level: Annotated[int, typer.Option("-e", "--delayLevel", min=1, help="With -d true.")] = 1,
    compress: _Compress = Switch.FALSE,
    compress_type: _CompressType = CompressType.ZLIB,
    compress_level: _CompressLevel = 5,
    compress_over: _CompressOver = 4096,
    trace: _Trace = Switch.FALSE,
    acl: _Acl = Switch.FALSE,
    access_key: _AccessKey = "rocketmq2",
    secret_key: _SecretKey = "12345678",
    interval: _Interval = 1_000,
    seconds: _Seconds = 0.0,
    warm_up: _WarmUp = 0.0,
    as_json: _Json = False,
) -> None:
    """Send messages one by one; Ctrl-C sums up.

    Each thread waits for its answer before it sends again; with `-y true` many sends are in flight.
    """
    from kourou.cli.bench_messages import Shape
    from kourou.cli.bench_producer import ProducerBench, producer_load

    def make() -> Load:
        return producer_load(
            ProducerBench(
                target=_target(topic, namesrv, trace, acl, access_key, secret_key),
                shape=Shape(
                    size_bytes=size,
                    with_key=bool(key),
                    tag_count=tags,
                    delay_level=delay_level if delay else 0,
                ),
                compression=_compression(compress, compress_type, compress_level, compress_over),
                threads=threads,
                quantity=quantity,
                is_async=bool(is_async),
                in_flight=in_flight,
                report_interval_ms=interval,
            )
        )

    _run("producer", make, _limits(seconds, warm_up, interval, as_json))


@bench_app.command()
def consumer(
    namesrv: _Namesrv = None,
    topic: _Topic = TOPIC,
    threads: Annotated[
        int, typer.Option("-w", "--threadCount", min=1, max=10_000, help="Messages handled at once.")
    ] = 20,
    group: Annotated[str, typer.Option("-g", "--group", help="Consumer group.")] = "benchmark_consumer",
    group_suffix: Annotated[
        Switch, _switch("-p", "--groupPrefixEnable", help="Whether to add _0 to _99, by time, to the group.")
    ] = Switch.FALSE,
    filter_type: Annotated[
        FilterType, typer.Option("-f", "--filterType", case_sensitive=False, help="What -e holds.")
    ] = FilterType.TAG,
    expression: Annotated[
        Path | None, typer.Option("-e", "--expression", metavar="FILE", help="File with the expression.")
    ] = None,
    fail_rate: Annotated[
        float, typer.Option("-r", "--failRate", min=0, max=1, help="Share to send back.")
    ] = 0.0,
    quantity: _Quantity = 0,
    consume_from: Annotated[ConsumeFrom, typer.Option(help="Where a new group begins.")] = ConsumeFrom.LAST,
    batch_size: Annotated[int, typer.Option(min=1, max=1024, help="Messages to a handler at once.")] = 1,
    in_threads: Annotated[
        bool, typer.Option("--in-threads", help="Handle in threads, not on the event loop.")
    ] = False,
    trace: _Trace = Switch.FALSE,
    acl: _Acl = Switch.FALSE,
    access_key: _AccessKey = "rocketmq2",
    secret_key: _SecretKey = "12345678",
    interval: _Interval = 1_000,
    seconds: _Seconds = 0.0,
    warm_up: _WarmUp = 0.0,
    as_json: _Json = False,
) -> None:
    """Consume messages as fast as they come; Ctrl-C sums up."""
    from kourou.cli.bench_consumer import ConsumerBench, ConsumerLoad

    def make() -> Load:
        suffix = f"_{time.time_ns() // 1_000_000 % 100}" if group_suffix else ""
        return ConsumerLoad(
            ConsumerBench(
                target=_target(topic, namesrv, trace, acl, access_key, secret_key),
                group=f"{group}{suffix}",
                threads=threads,
                quantity=quantity,
                expression=_expression(expression),
                expression_type=filter_type.value,
                fail_rate=fail_rate,
                consume_from=consume_from.value,
                batch_size=batch_size,
                in_threads=in_threads,
                report_interval_ms=interval,
            )
        )

    _run("consumer", make, _limits(seconds, warm_up, interval, as_json))


@bench_app.command()
def transaction(
    namesrv: _Namesrv = None,
    topic: _Topic = TOPIC,
    threads: _Threads = 32,
    size: _Size = 2048,
    quantity: _Quantity = 0,
    send_rollback: Annotated[
        float, typer.Option("-sr", "--sendRollbackRate", min=0, max=1, help="Share that rolls back.")
    ] = 0.0,
    send_unknown: Annotated[
        float, typer.Option("-su", "--sendUnknownRate", min=0, max=1, help="Share left to checks.")
    ] = 0.0,
    check_rollback: Annotated[
        float, typer.Option("-cr", "--checkRollbackRate", min=0, max=1, help="Of checks: rolled back.")
    ] = 0.0,
    check_unknown: Annotated[
        float, typer.Option("-cu", "--checkUnknownRate", min=0, max=1, help="Of checks: asked again.")
    ] = 0.0,
    batch_id: Annotated[
        int | None, typer.Option("-b", "--testBatchId", help="Name of this run; the time if not given.")
    ] = None,
    send_interval: Annotated[
        int, typer.Option("-i", "--sendInterval", min=0, help="Milliseconds from message to message.")
    ] = 0,
    trace: _Trace = Switch.FALSE,
    acl: _Acl = Switch.FALSE,
    access_key: _AccessKey = "rocketmq2",
    secret_key: _SecretKey = "12345678",
    interval: _Interval = 1_000,
    seconds: _Seconds = 0.0,
    warm_up: _WarmUp = 0.0,
    as_json: _Json = False,
) -> None:
    """Send messages in transactions; Ctrl-C sums up."""
    from kourou.cli.bench_transaction import TransactionBench, TransactionLoad

    def make() -> Load:
        return TransactionLoad(
            TransactionBench(
                target=_target(topic, namesrv, trace, acl, access_key, secret_key),
                batch_id=time.time_ns() // 1_000_000 if batch_id is None else batch_id,
                threads=threads,
                size_bytes=size,
                quantity=quantity,
                send_rollback_rate=send_rollback,
                send_unknown_rate=send_unknown,
                check_rollback_rate=check_rollback,
                check_unknown_rate=check_unknown,
                interval_ms=send_interval,
                report_interval_ms=interval,
            )
        )

    _run("transaction", make, _limits(seconds, warm_up, interval, as_json))


@bench_app.command()
def batch(
    namesrv: _Namesrv = None,
    topic: _Topic = TOPIC,
    threads: _Threads = 64,
    size: _Size = 128,
    batch_size: Annotated[int, typer.Option("-b", "--batchSize", min=1, help="Messages in a batch.")] = 16,
    key: _Key = Switch.FALSE,
    tags: _Tags = 0,
    property_size: Annotated[
        int, typer.Option("-p", "--propertySize", min=0, help="Bytes of properties in each message.")
    ] = 0,
    quantity: _Quantity = 0,
    compress: Annotated[
        Switch, _switch("-c", "--compressEnable", help="Taken, without effect: batches are not compressed.")
    ] = Switch.FALSE,
    compress_type: Annotated[
        CompressType, typer.Option("-ct", "--compressType", case_sensitive=False, help="As -c.")
    ] = CompressType.ZLIB,
    compress_level: Annotated[int, typer.Option("-cl", "--compressLevel", min=0, max=22, help="As -c.")] = 5,
    compress_over: Annotated[int, typer.Option("-ch", "--compressOverHowMuch", min=0, help="As -c.")] = 4096,
    trace: _Trace = Switch.FALSE,
    acl: _Acl = Switch.FALSE,
    access_key: _AccessKey = "rocketmq2",
    secret_key: _SecretKey = "12345678",
    interval: _Interval = 1_000,
    seconds: _Seconds = 0.0,
    warm_up: _WarmUp = 0.0,
    as_json: _Json = False,
) -> None:
    """Send messages in batches; Ctrl-C sums up."""
    from kourou.cli.bench_batch import BatchBench, BatchLoad
    from kourou.cli.bench_messages import Shape

    def make() -> Load:
        where = namesrv or os.environ.get("NAMESRV_ADDR") or _BATCH_NAMESRV
        return BatchLoad(
            BatchBench(
                target=_target(topic, where, trace, acl, access_key, secret_key),
                shape=Shape(
                    size_bytes=size, with_key=bool(key), tag_count=tags, property_bytes=property_size
                ),
                threads=threads,
                batch_size=batch_size,
                quantity=quantity,
                report_interval_ms=interval,
            )
        )

    _run("batch", make, _limits(seconds, warm_up, interval, as_json))


@bench_app.command()
def latency(
    namesrv: _Namesrv = None,
    topic: _Topic = TOPIC,
    rate: Annotated[int, typer.Option("-r", "--rate", min=1, help="Messages a second.")] = 1_000,
    size: _Size = 128,
    quantity: _Quantity = 0,
    trace: _Trace = Switch.FALSE,
    acl: _Acl = Switch.FALSE,
    access_key: _AccessKey = "rocketmq2",
    secret_key: _SecretKey = "12345678",
    interval: _Interval = 1_000,
    seconds: _Seconds = 0.0,
    warm_up: _WarmUp = 0.0,
    as_json: _Json = False,
) -> None:
    """Time messages from end to end; Ctrl-C sums up.

    They are sent at a steady rate and consumed in this process; a message that is sent late counts
    from when it was due.
    """
    from kourou.cli.bench_latency import LatencyBench, LatencyLoad

    def make() -> Load:
        return LatencyLoad(
            LatencyBench(
                target=_target(topic, namesrv, trace, acl, access_key, secret_key),
                rate=rate,
                size_bytes=size,
                quantity=quantity,
                report_interval_ms=interval,
            )
        )

    _run("latency", make, _limits(seconds, warm_up, interval, as_json))


def _run(name: str, make: Callable[[], Load], limits: Limits) -> None:
    from kourou.cli.bench_run import BenchRun

    run_command(f"kourou bench {name}", lambda: BenchRun(make(), limits).run())


def _limits(seconds: float, warm_up_s: float, interval_ms: int, as_json: bool) -> Limits:
    from kourou.cli.bench_run import Limits

    return Limits(seconds=seconds, warm_up_s=warm_up_s, report_interval_ms=interval_ms, as_json=as_json)


def _target(
    topic: str, namesrv: str | None, trace: Switch, acl: Switch, access_key: str, secret_key: str
) -> Target:
    from kourou.cli.bench_messages import Target
    from kourou.client.credentials import Credentials

    if acl and not (access_key and secret_key):
        raise ConfigError("-a true needs -ak and -sk")
    return Target(
        topic=topic,
        namesrv=namesrv,
        credentials=Credentials(access_key, secret_key) if acl else None,
        trace=bool(trace),
    )


def _compression(enabled: Switch, kind: CompressType, level: int, over_bytes: int) -> Compression:
    from kourou.cli.bench_messages import Compression
    from kourou.protocol.compression import CompressionType

    return Compression(
        enabled=bool(enabled), kind=CompressionType[kind.value], level=level, over_bytes=over_bytes
    )


def _expression(path: Path | None) -> str:
    if path is None:
        return "*"
    try:
        return path.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"-e {path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
