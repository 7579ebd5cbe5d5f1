"""replay: messages of an archive into a topic again, by time, in the order of their queues.

Sent at least once. Progress is noted after each slice (replay_plan.py); a replay that was ended, by kill -9
too, goes on behind the last one when it is run again, and sends what it had sent since once more. Keys, tags
and the application's properties stay; ids and times are new, what RocketMQ noted in properties is left out.
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
"""Without a rate: so many that a slice's beginning does not count, and soon sent again after a crash."""
_SLICE_S: Final = 30
"""With a rate: so long is a slice."""
_OURS: Final = {
    "topic": "--to",
    "namesrv": "-n",
    "dropreservedproperties": "nothing: it has to be on",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayRequest:
    """What `kourou pipeline replay` was told. Times are milliseconds since 1970."""

    archive: str
    to: str | None = None
    same_topics: bool = False
    namesrv: str | None = None
    topics: tuple[str, ...] = ()
    from_ms: int | None = None
    until_ms: int | None = None
    rate: float | None = None
    origin: str | None = None
    """A property that says where a message was: to know those again that come twice."""
    dry_run: bool = False
    restart: bool = False
    options: Mapping[str, str] = field(default_factory=dict)
    master: str = "local[*]"
    as_json: bool = False
    fast_start: bool = False

    def check(self) -> None:
        """ConfigError names all that is wrong."""
        problems = [
            f"--option {name}: is given by {_OURS[name.lower()]}"
            for name in self.options
            if name.lower() in _OURS
        ]
        if self.to is not None and self.same_topics:
            problems.append("--to and --same-topics exclude each other: give one of them")
        if self.to is None and not self.same_topics:
            problems.append("nothing says where to: give --to TOPIC, or --same-topics")
        if self.from_ms is not None and self.until_ms is not None and self.from_ms >= self.until_ms:
            problems.append(
                f"the range is empty: --from {format_time(self.from_ms)} is not before "
                f"--until {format_time(self.until_ms)}"
            )
        if self.rate is not None and not self.rate > 0:
            problems.append(f"--rate {self.rate:g}: must be more than 0 messages a second")
        if problems:
            raise ConfigError(*problems)

    def sink_options(self) -> SinkOptions:
        """How messages are sent."""
        from kourou.spark.sink.sink_options import SinkOptions

        given = {**self.options, "dropReservedProperties": "true"}
        if self.to is not None:
            given["topic"] = self.to
        if self.namesrv:
            given["namesrv"] = self.namesrv
        return SinkOptions.parse(given)

    def what(self, options: SinkOptions) -> dict[str, Any]:
        """What tells this replay from others."""
        return {
            "to": self.to,
            "namesrv": options.namesrv,
            "topics": sorted(self.topics),
            "from_ms": self.from_ms,
            "until_ms": self.until_ms,
        }


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """What there is to send, queue by queue."""

    rows: int
    first_ms: int
    last_ms: int
    queues: tuple[QueueCount, ...]
    seconds: float | None
    """How long it takes at the rate asked for."""

    def to_json(self) -> dict[str, Any]:
        """For `--json`."""
        return {"type": "plan", **asdict(self)}


def run_replay(request: ReplayRequest, output: ProgressOutput | None = None) -> Summary:
    """Send, or with `dry_run` say what would be sent. Errors say what a user can do, without stacks."""
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
        # What is left of one that was ended may be nothing, and then it is done.
        if request.restart or not ReplayState.of(archive, what).is_resumed:
            check_range(archive, topics, request.from_ms, request.until_ms)
        with (
            pipeline_session(_TITLE, master=request.master, fast_start=request.fast_start) as spark,
            pipeline_errors(_TITLE),
        ):
            return Replay(spark, request, archive, options, topics, targets).run(output)


def wanted_topics(archive: ArchiveFolder, asked: Sequence[str]) -> tuple[str, ...]:
    """The topics to send. ConfigError names the nearest for those that the archive does not have."""
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
    """The queues of the topics to send to. Errors say that there is no name server, or no such topic."""
    from kourou.spark.sink.sink_producer import WorkerProducer

    _check_topics(options, topics)
    worker = WorkerProducer(options)
    try:
        return {topic: list(worker.portal.call(lambda: worker.producer.queues(topic))) for topic in topics}  # noqa: B023
    finally:
        worker.stop()


def _check_topics(options: SinkOptions, topics: Sequence[str]) -> None:
    """ConfigError for topics that there are not: brokers would make them at the first message, and a name
    that was mistyped would pass for one that was meant."""
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
                f"there is no topic {topic!r} to send to; {nearest(topic, known)} "
                "(mqadmin updateTopic makes one)"
                for topic in missing
            )
        )


class Replay:
    """One run."""

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
        """Send what there is."""
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
                # Messages that are archived meanwhile do not belong to it.
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
                f"goes on behind {state.rows:,} messages that an earlier run has sent (--restart: anew)"
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
        """Send slice after slice; False: somebody wanted it to end."""
        state, stop_request = self._state, _StopRequest()
        # Also those that are done, so that the others go where they went before.
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
    """The first is heard behind the slice that is under way, the second at once."""

    def note(self, _number: int = 0, _frame: FrameType | None = None) -> None:
        self.times += 1
        if self.times > 1:
            raise KeyboardInterrupt


def format_time(timestamp_ms: int) -> str:
    """As people read it, in UTC."""
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds")
