"""`kourou bench`: load generators with the options of Apache's benchmark programs.

Parses options; run.py and the module of each load do the work and are imported on demand. Switches take
`true` or `false`, like Apache's.
"""

from __future__ import annotations

import enum
import os
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from kourou.cli.option_types import Command, FloatRange, IntRange, choice_option
from kourou.cli.problems import UsageError, run_command
from kourou.cli.usage import OneLineGroup
from kourou.clock import wall_ms
from kourou.errors import ConfigError

if TYPE_CHECKING:
    from kourou.cli.bench.messages import Compression, Target
    from kourou.cli.bench.run import Limits, Load

bench_app = OneLineGroup(
    "bench", help="Measure a cluster: send, consume, transactions, batches, end-to-end latency."
)

TOPIC: Final = "BenchmarkTest"
# The default of Apache's BatchProducer; the other programs have none.
_BATCH_NAMESRV: Final = "127.0.0.1:9876"


class Switch(enum.StrEnum):
    """A `true` or `false` option of Apache's programs."""

    TRUE = "true"
    FALSE = "false"

    def __bool__(self) -> bool:
        return self is Switch.TRUE


class CompressType(enum.StrEnum):
    """Values of `--compressType`, in Apache's spelling."""

    ZLIB = "ZLIB"
    LZ4 = "LZ4"
    ZSTD = "ZSTD"


class FilterType(enum.StrEnum):
    """The language of a subscription's expression."""

    TAG = "TAG"
    SQL92 = "SQL92"


class ConsumeFrom(enum.StrEnum):
    """Where a group without offsets starts."""

    LAST = "last"
    FIRST = "first"


@dataclass(frozen=True)
class Shared:
    """The options common to all loads."""

    namesrv: str | None
    topic: str
    trace: Switch
    acl: Switch
    access_key: str
    secret_key: str
    interval: int
    seconds: float
    warm_up: float
    as_json: bool

    def target(self, default_namesrv: str | None = None) -> Target:
        """Topic, name servers and credentials; `default_namesrv` applies without `-n` and NAMESRV_ADDR."""
        from kourou.cli.bench.messages import Target
        from kourou.client.core.credentials import Credentials

        if self.acl and not (self.access_key and self.secret_key):
            raise UsageError("-a true needs -ak and -sk")
        namesrv = self.namesrv
        if default_namesrv is not None:
            namesrv = namesrv or os.environ.get("NAMESRV_ADDR") or default_namesrv
        return Target(
            topic=self.topic,
            namesrv=namesrv,
            credentials=Credentials(self.access_key, self.secret_key) if self.acl else None,
            trace=bool(self.trace),
        )

    @property
    def limits(self) -> Limits:
        """Duration, warm-up and reporting of a run."""
        from kourou.cli.bench.run import Limits

        return Limits(
            seconds=self.seconds,
            warm_up_s=self.warm_up,
            report_interval_ms=self.interval,
            as_json=self.as_json,
        )


def _switch(*names: str, help: str) -> Callable[[Command], Command]:
    return choice_option(*names, default=Switch.FALSE, case_sensitive=False, metavar="true|false", help=help)


def _number(
    *names: str, default: int, min: int, max: int | None = None, help: str
) -> Callable[[Command], Command]:
    return click.option(*names, type=IntRange(min, max), default=default, help=help)


def _share(*names: str, help: str) -> Callable[[Command], Command]:
    return click.option(*names, type=FloatRange(0, 1), default=0.0, help=help)


def _threads(default: int, help: str = "Threads.") -> Callable[[Command], Command]:
    return _number("threads", "-w", "--threadCount", default=default, min=1, max=10_000, help=help)


def _size(default: int) -> Callable[[Command], Command]:
    return _number("size", "-s", "--messageSize", default=default, min=1, help="Body size in bytes.")


def _compress(help: str) -> Callable[[Command], Command]:
    return _switch("compress", "-c", "--compressEnable", help=help)


def _compress_type(help: str) -> Callable[[Command], Command]:
    names = ("compress_type", "-ct", "--compressType")
    return choice_option(*names, default=CompressType.ZLIB, case_sensitive=False, help=help)


def _compress_level(help: str) -> Callable[[Command], Command]:
    return _number("compress_level", "-cl", "--compressLevel", default=5, min=0, max=22, help=help)


def _compress_over(help: str) -> Callable[[Command], Command]:
    return _number("compress_over", "-ch", "--compressOverHowMuch", default=4096, min=0, help=help)


def _target_options(command: Command) -> Command:
    """Options that come first in every load's help."""
    return _namesrv(_topic(command))


def _run_options(command: Callable[..., None]) -> Callable[..., None]:
    """Options that come last in every load's help. Together with those of `_target_options` they are passed
    as `shared`."""

    @wraps(command)
    def gathered(**options: Any) -> None:
        shared = Shared(**{each.name: options.pop(each.name) for each in fields(Shared)})
        command(shared=shared, **options)

    signing = (_trace, _acl, _access_key, _secret_key)
    for option in reversed((*signing, _interval, _seconds, _warm_up, _json)):
        gathered = option(gathered)
    return gathered


_namesrv = click.option(
    "namesrv", "-n", "--namesrvAddr", metavar="LIST", help="Name servers, host:port;host:port."
)
_topic = click.option("-t", "--topic", default=TOPIC, help="Topic.")
_key = _switch("key", "-k", "--keyEnable", help="Set a key on messages: the current second.")
_tags = _number("tags", "-l", "--tagCount", default=0, min=0, help="Number of different tags.")
_quantity = _number(
    "quantity", "-q", "--messageQuantity", default=0, min=0, help="Total number of messages; 0: unlimited."
)
_trace = _switch("trace", "-m", "--msgTraceEnable", help="Write message traces.")
_acl = _switch("acl", "-a", "--aclEnable", help="Sign requests.")
_access_key = click.option("access_key", "-ak", "--accessKey", default="rocketmq2", help="With -a true.")
_secret_key = click.option("secret_key", "-sk", "--secretKey", default="12345678", help="With -a true.")
_interval = _number(
    "interval", "-ri", "--reportInterval", default=1_000, min=10, help="Milliseconds between progress lines."
)
_seconds = click.option("--seconds", type=FloatRange(0), default=0.0, help="Duration; 0: unlimited.")
_warm_up = click.option(
    "--warm-up", type=FloatRange(0), default=0.0, metavar="SECONDS", help="Run this long before measuring."
)
_json = click.option(
    "as_json", "--json", is_flag=True, help="Print the result as JSON; progress goes to stderr."
)


@bench_app.command()
@_target_options
@_threads(64)
@_size(128)
@_key
@_tags
@_quantity
@_switch("is_async", "-y", "--asyncEnable", help="Keep many sends in flight from one thread.")
@_number("--in-flight", default=10_000, min=1, help="With -y true: number of sends in flight.")
@_switch("delay", "-d", "--delayEnable", help="Delay messages.")
@_number("delay_level", "-e", "--delayLevel", default=1, min=1, help="With -d true.")
@_compress("Compress bodies.")
@_compress_type("With -c true.")
@_compress_level("With -c true.")
@_compress_over("With -c true: minimum size in bytes.")
@_run_options
def producer(
    *,
    shared: Shared,
    threads: int,
    size: int,
    key: Switch,
    tags: int,
    quantity: int,
    is_async: Switch,
    in_flight: int,
    delay: Switch,
    delay_level: int,
    compress: Switch,
    compress_type: CompressType,
    compress_level: int,
    compress_over: int,
) -> None:
    """Send messages one at a time; Ctrl-C stops and prints a summary.

    Each thread waits for a response before its next send; with `-y true` many sends are in flight.
    """
    from kourou.cli.bench.messages import Shape
    from kourou.cli.bench.producer import ProducerBench, producer_load

    def make() -> Load:
        return producer_load(
            ProducerBench(
                target=shared.target(),
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
                report_interval_ms=shared.interval,
            )
        )

    _run("producer", make, shared.limits)


@bench_app.command()
@_target_options
@_threads(20, "Messages handled in parallel.")
@click.option("-g", "--group", default="benchmark_consumer", help="Consumer group.")
@_switch("group_suffix", "-p", "--groupPrefixEnable", help="Append _0 to _99, chosen by time, to the group.")
@choice_option(
    "filter_type",
    "-f",
    "--filterType",
    default=FilterType.TAG,
    case_sensitive=False,
    help="Language of the expression in -e.",
)
@click.option("-e", "--expression", type=Path, metavar="FILE", help="File that contains the expression.")
@_share("fail_rate", "-r", "--failRate", help="Share of messages to send back.")
@_quantity
@choice_option("--consume-from", default=ConsumeFrom.LAST, help="Where a group without offsets starts.")
@_number("--batch-size", default=1, min=1, max=1024, help="Maximum messages per handler call.")
@click.option("--in-threads", is_flag=True, help="Run the handler in threads, not on the event loop.")
@_run_options
def consumer(
    *,
    shared: Shared,
    threads: int,
    group: str,
    group_suffix: Switch,
    filter_type: FilterType,
    expression: Path | None,
    fail_rate: float,
    quantity: int,
    consume_from: ConsumeFrom,
    batch_size: int,
    in_threads: bool,
) -> None:
    """Consume messages at full speed; Ctrl-C stops and prints a summary."""
    from kourou.cli.bench.consumer import ConsumerBench, ConsumerLoad

    def make() -> Load:
        suffix = f"_{wall_ms() % 100}" if group_suffix else ""
        return ConsumerLoad(
            ConsumerBench(
                target=shared.target(),
                group=f"{group}{suffix}",
                threads=threads,
                quantity=quantity,
                expression=_expression(expression),
                expression_type=filter_type.value,
                fail_rate=fail_rate,
                consume_from=consume_from.value,
                batch_size=batch_size,
                in_threads=in_threads,
                report_interval_ms=shared.interval,
            )
        )

    _run("consumer", make, shared.limits)


@bench_app.command()
@_target_options
@_threads(32)
@_size(2048)
@_quantity
@_share("send_rollback", "-sr", "--sendRollbackRate", help="Share of sends that roll back.")
@_share("send_unknown", "-su", "--sendUnknownRate", help="Share of sends left to checks.")
@_share("check_rollback", "-cr", "--checkRollbackRate", help="Share of checks that roll back.")
@_share("check_unknown", "-cu", "--checkUnknownRate", help="Share of checks that stay unknown.")
@click.option("batch_id", "-b", "--testBatchId", type=int, help="Id of this run; default: the time.")
@_number("send_interval", "-i", "--sendInterval", default=0, min=0, help="Milliseconds between sends.")
@_run_options
def transaction(
    *,
    shared: Shared,
    threads: int,
    size: int,
    quantity: int,
    send_rollback: float,
    send_unknown: float,
    check_rollback: float,
    check_unknown: float,
    batch_id: int | None,
    send_interval: int,
) -> None:
    """Send transactional messages; Ctrl-C stops and prints a summary."""
    from kourou.cli.bench.transaction import TransactionBench, TransactionLoad

    def make() -> Load:
        return TransactionLoad(
            TransactionBench(
                target=shared.target(),
                batch_id=wall_ms() if batch_id is None else batch_id,
                threads=threads,
                size_bytes=size,
                quantity=quantity,
                send_rollback_rate=send_rollback,
                send_unknown_rate=send_unknown,
                check_rollback_rate=check_rollback,
                check_unknown_rate=check_unknown,
                interval_ms=send_interval,
                report_interval_ms=shared.interval,
            )
        )

    _run("transaction", make, shared.limits)


@bench_app.command()
@_target_options
@_threads(64)
@_size(128)
@_number("batch_size", "-b", "--batchSize", default=16, min=1, help="Messages per batch.")
@_key
@_tags
@_number("property_size", "-p", "--propertySize", default=0, min=0, help="Bytes of properties per message.")
@_quantity
@_compress("Accepted, no effect: batches are not compressed.")
@_compress_type("Like -c.")
@_compress_level("Like -c.")
@_compress_over("Like -c.")
@_run_options
def batch(
    *,
    shared: Shared,
    threads: int,
    size: int,
    batch_size: int,
    key: Switch,
    tags: int,
    property_size: int,
    quantity: int,
    compress: Switch,
    compress_type: CompressType,
    compress_level: int,
    compress_over: int,
) -> None:
    """Send messages in batches; Ctrl-C stops and prints a summary."""
    from kourou.cli.bench.batch import BatchBench, BatchLoad
    from kourou.cli.bench.messages import Shape

    def make() -> Load:
        return BatchLoad(
            BatchBench(
                target=shared.target(default_namesrv=_BATCH_NAMESRV),
                shape=Shape(
                    size_bytes=size, with_key=bool(key), tag_count=tags, property_bytes=property_size
                ),
                threads=threads,
                batch_size=batch_size,
                quantity=quantity,
                report_interval_ms=shared.interval,
            )
        )

    _run("batch", make, shared.limits)


@bench_app.command()
@_target_options
@_number("-r", "--rate", default=1_000, min=1, help="Messages per second.")
@_size(128)
@_quantity
@_run_options
def latency(
    *,
    shared: Shared,
    rate: int,
    size: int,
    quantity: int,
) -> None:
    """Measure end-to-end latency; Ctrl-C stops and prints a summary.

    Messages are sent at a constant rate and consumed in this process; the latency of a late send is measured
    from the time at which it was due.
    """
    from kourou.cli.bench.latency import LatencyBench, LatencyLoad

    def make() -> Load:
        return LatencyLoad(
            LatencyBench(
                target=shared.target(),
                rate=rate,
                size_bytes=size,
                quantity=quantity,
                report_interval_ms=shared.interval,
            )
        )

    _run("latency", make, shared.limits)


def _run(name: str, make: Callable[[], Load], limits: Limits) -> None:
    from kourou.cli.bench.run import BenchRun

    run_command(f"kourou bench {name}", lambda: BenchRun(make(), limits).run())


def _compression(enabled: Switch, kind: CompressType, level: int, over_bytes: int) -> Compression:
    from kourou.cli.bench.messages import Compression
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
