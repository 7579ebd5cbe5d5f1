"""replay: sends archived messages to a topic again, by time, in the order of their queues.

Delivery is at least once. Progress is recorded after each slice (replay_plan.py); an interrupted replay, even
by kill -9, continues after the last recorded slice when it is run again, and repeats what it sent since.
Keys, tags and user properties are kept; ids and times are new, and RocketMQ's own properties are dropped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from kourou.errors import ConfigError
from kourou.protocol.bodies import MessageQueue
from kourou.protocol.names import is_inner_topic
from kourou.spark.pipelines.archive.archive_folder import ArchiveFolder, open_archive
from kourou.spark.pipelines.check.document import nearest
from kourou.spark.pipelines.progress import PipelineProgress, ProgressOutput, Summary
from kourou.spark.pipelines.query_watch import StopRequest, stop_on_signals
from kourou.spark.pipelines.replay.replay_plan import target_queues
from kourou.spark.pipelines.replay.replay_range import check_range, no_messages
from kourou.spark.pipelines.replay.replay_state import ReplayState

if TYPE_CHECKING:
    from types import FrameType

    from pyspark.sql import SparkSession

    from kourou.spark.pipelines.replay.replay_rows import ArchivedRows, QueueCount
    from kourou.spark.sink.sink_options import SinkOptions

_TITLE: Final = "replay"
_SLICE_ROWS: Final = 200_000
"""Without a rate: enough to amortise the start of a slice, and few enough to repeat after a crash."""
_SLICE_S: Final = 30
"""With a rate: the duration of a slice."""
_OURS: Final = {
    "topic": "--to",
    "namesrv": "-n",
    "dropreservedproperties": "nothing: it is always on",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayRequest:
    """The arguments of `kourou pipeline replay`. Times are milliseconds since 1970."""

    archive: str
    to: str | None = None
    same_topics: bool = False
    namesrv: str | None = None
    topics: tuple[str, ...] = ()
    from_ms: int | None = None
    until_ms: int | None = None
    rate: float | None = None
    origin: str | None = None
    """A property with the original position of a message, to recognise duplicates."""
    dry_run: bool = False
    restart: bool = False
    options: Mapping[str, str] = field(default_factory=dict)
    master: str = "local[*]"
    as_json: bool = False
    fast_start: bool = False

    def check(self) -> None:
        """Raise ConfigError with every problem of the request."""
        problems = [
            f"--option {name}: use {_OURS[name.lower()]} instead"
            for name in self.options
            if name.lower() in _OURS
        ]
        if self.to is not None and self.same_topics:
            problems.append("--to and --same-topics are mutually exclusive: use one of them")
        if self.to is None and not self.same_topics:
            problems.append("no destination: give --to TOPIC, or --same-topics")
        if self.from_ms is not None and self.until_ms is not None and self.from_ms >= self.until_ms:
            problems.append(
                f"the range is empty: --from {format_time(self.from_ms)} is not before "
                f"--until {format_time(self.until_ms)}"
            )
        if self.rate is not None and not self.rate > 0:
            problems.append(f"--rate {self.rate:g}: must be more than 0 messages per second")
        if problems:
            raise ConfigError(*problems)

    def sink_options(self) -> SinkOptions:
        """The options of the sink that sends the messages."""
        from kourou.spark.sink.sink_options import SinkOptions

        given = {**self.options, "dropReservedProperties": "true"}
        if self.to is not None:
            given["topic"] = self.to
        if self.namesrv:
            given["namesrv"] = self.namesrv
        return SinkOptions.parse(given)

    def what(self, options: SinkOptions) -> dict[str, Any]:
        """The identity of this replay."""
        return {
            "to": self.to,
            "namesrv": options.namesrv,
            "topics": sorted(self.topics),
            "from_ms": self.from_ms,
            "until_ms": self.until_ms,
        }


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """The messages to send, by queue."""

    rows: int
    first_ms: int
    last_ms: int
    queues: tuple[QueueCount, ...]
    seconds: float | None
    """The duration at the requested rate."""

    def to_json(self) -> dict[str, Any]:
        """The report for `--json`."""
        return {"type": "plan", **asdict(self)}


def run_replay(request: ReplayRequest, output: ProgressOutput | None = None) -> Summary:
    """Send, or with `dry_run` print what would be sent. Errors are actionable and without stack traces."""
    from kourou.spark.pipelines.pipeline_errors import pipeline_errors
    from kourou.spark.pipelines.pipeline_session import pipeline_session

    request.check()
    archive = open_archive(request.archive)
    options = request.sink_options()
    topics = wanted_topics(archive, request.topics)
    targets = find_targets(options, [request.to] if request.to is not None else topics)
    output = output or ProgressOutput.standard(as_json=request.as_json)
    what = request.what(options)
    with nullcontext() if request.dry_run else ReplayState.locked(archive, what):
        # An interrupted replay may have nothing left to send.
        if request.restart or not ReplayState.of(archive, what).is_resumed:
            check_range(archive, topics, request.from_ms, request.until_ms)
        with (
            pipeline_session(_TITLE, master=request.master, fast_start=request.fast_start) as spark,
            pipeline_errors(_TITLE),
        ):
            return Replay(spark, request, archive, options, topics, targets).run(output)


def wanted_topics(archive: ArchiveFolder, asked: Sequence[str]) -> tuple[str, ...]:
    """The topics to send. ConfigError for topics that are not in the archive, with the nearest name."""
    from kourou.spark.pipelines.lake.lake import open_backend

    snapshot = open_backend(archive.table).snapshot()
    there = sorted(
        {str(dict(file.partition)["topic"]) for file in snapshot.files} if snapshot is not None else ()
    )
    if not there:
        raise ConfigError(f"{archive.path}: the archive has no messages yet")
    problems = []
    for topic in asked:
        if topic not in there:
            problems.append(f"{archive.path}: the archive has no topic {topic!r}; {nearest(topic, there)}")
    if problems:
        raise ConfigError(*problems)
    return tuple(sorted(set(asked))) or tuple(there)


def find_targets(options: SinkOptions, topics: Sequence[str]) -> dict[str, list[MessageQueue]]:
    """The queues of the target topics. Raises if there is no name server or no such topic."""
    from kourou.spark.sink.sink_producer import WorkerProducer

    _check_topics(options, topics)
    worker = WorkerProducer(options)
    try:
        return {topic: list(worker.portal.call(lambda: worker.producer.queues(topic))) for topic in topics}  # noqa: B023
    finally:
        worker.stop()


def _check_topics(options: SinkOptions, topics: Sequence[str]) -> None:
    """ConfigError for missing topics: brokers would create them at the first message, and a mistyped name
    would go unnoticed."""
    from kourou.spark.source.options import Connection
    from kourou.spark.source.source_client import SourceClient

    connection = Connection(
        options.namesrv, credentials=options.credentials, namespace=options.namespace, tls=options.tls
    )
    with SourceClient(connection) as client:
        missing = sorted(set(topics) - client.routes(topics).keys())
        known = [topic for topic in client.topic_names() if not is_inner_topic(topic)] if missing else []
    if missing:
        raise ConfigError(
            *(
                f"the topic {topic!r} to send to does not exist; {nearest(topic, known)} "
                "(create it with mqadmin updateTopic)"
                for topic in missing
            )
        )


class Replay:
    """One run of a replay, from reading the source to the report."""

    def __init__(
        self,
        spark: SparkSession,
        request: ReplayRequest,
        archive: ArchiveFolder,
        options: SinkOptions,
        topics: Sequence[str],
        targets: Mapping[str, Sequence[MessageQueue]],
    ) -> None:
        self._spark = spark
        self._request = request
        self._archive = archive
        self._options = options
        self._topics = topics
        self._targets = targets
        self._state = ReplayState.of(archive, request.what(options), anew=request.restart)

    def run(self, output: ProgressOutput) -> Summary:
        """Send the messages; returns the counts."""
        from kourou.spark.pipelines.replay.replay_rows import ArchivedRows

        request, state = self._request, self._state
        if request.restart and not request.dry_run:
            state.remove()
        until_ms = state.until_ms if state.is_resumed else request.until_ms
        rows = ArchivedRows(
            self._spark,
            self._archive,
            topics=self._topics,
            from_ms=request.from_ms,
            until_ms=until_ms,
            next_offsets=state.next_offsets,
        )
        with PipelineProgress(_TITLE, output) as progress:
            report = self._report(rows)
            self._tell(progress, output, report)
            if request.dry_run:
                return progress.finish()
            if not state.is_resumed:
                # Messages archived in the meantime are not included.
                state.until_ms = request.until_ms if request.until_ms is not None else report.last_ms + 1
            return progress.finish("finished" if self._send(rows, report, progress) else "stopped")

    def _report(self, rows: ArchivedRows) -> ReplayReport:
        counts = rows.counts()
        total = sum(each.rows for each in counts)
        if not total and not self._state.is_resumed:
            raise ConfigError(self._nothing(rows))
        first_ms = min((each.first_ms for each in counts), default=0)
        last_ms = max((each.last_ms for each in counts), default=0)
        seconds = None if self._request.rate is None else round(total / self._request.rate, 1)
        return ReplayReport(total, first_ms, last_ms, tuple(counts), seconds)

    def _nothing(self, rows: ArchivedRows) -> str:
        first_ms, last_ms = rows.whole_range_ms()
        return no_messages(self._archive, self._topics, format_time(first_ms), format_time(last_ms))

    def _tell(self, progress: PipelineProgress, output: ProgressOutput, report: ReplayReport) -> None:
        state = self._state
        if output.as_json:
            import json

            extra = {"dry_run": self._request.dry_run, "resumed_behind_rows": state.rows}
            print(json.dumps(report.to_json() | extra), file=output.stream, flush=True)
            return
        if state.is_resumed:
            progress.say(
                f"continuing after {state.rows:,} messages sent by an earlier run (--restart to start over)"
            )
        if self._request.dry_run:
            for each in report.queues:
                progress.say(
                    f"{each.topic}, broker {each.broker}, queue {each.queue_id}: {each.rows:,} messages, "
                    f"offsets {each.first_offset} to {each.last_offset}"
                )
        where = self._request.to or "topics of the same names"
        takes = "" if report.seconds is None else f", in {report.seconds:,.0f} s or more"
        verb = "would be sent" if self._request.dry_run else "to send"
        progress.say(
            f"{report.rows:,} messages {verb} to {where}{takes}; stored from "
            f"{format_time(report.first_ms)} to {format_time(report.last_ms)}"
        )

    def _send(self, rows: ArchivedRows, report: ReplayReport, progress: PipelineProgress) -> bool:
        """Send slice after slice; False if a stop was requested."""
        state, stop_request = self._state, _StopRequest()
        # Including finished ones, so that the others keep their targets.
        queues = {*(each.queue for each in report.queues), *state.next_offsets}
        to = target_queues(sorted(queues), self._targets, self._request.to)
        slices = rows.slices(report.queues, self._slice_rows())
        with stop_on_signals(stop_request):
            for each in slices:
                if stop_request.times:
                    return False
                sent, refused = rows.send(
                    each, to, self._options, rate=self._request.rate, origin=self._request.origin
                )
                state.rows += sent + refused
                state.next_offsets |= {queue: part.last + 1 for queue, part in each.ranges.items()}
                state.save()
                progress.add(sent + refused, f"up to {format_time(each.end_ms)}", written=sent)
        state.remove()
        return True

    def _slice_rows(self) -> int:
        rate = self._request.rate
        return _SLICE_ROWS if rate is None else max(1, min(_SLICE_ROWS, round(rate * _SLICE_S)))


class _StopRequest(StopRequest):
    """The first request takes effect after the current slice, the second at once."""

    def note(self, _number: int = 0, _frame: FrameType | None = None) -> None:
        self.times += 1
        if self.times > 1:
            raise KeyboardInterrupt


def format_time(timestamp_ms: int) -> str:
    """A time as text, in UTC."""
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds")
