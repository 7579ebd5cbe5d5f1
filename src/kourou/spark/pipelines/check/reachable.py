"""Checks that the name servers and topics of a pipeline exist, before Spark starts.

Missing ones are reported like mistakes in the file, all at once. Not here: databases, which only a JVM can
reach.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kourou import wording
from kourou.errors import ConfigError, KourouError, NoNameServerError, NoRouteError
from kourou.protocol.bodies import MessageQueue
from kourou.protocol.names import is_inner_topic
from kourou.spark.pipelines.check.document import Mistakes, nearest
from kourou.spark.pipelines.check.spec import PipelineSpec, TopicSink
from kourou.spark.sink.sink_options import SinkOptions
from kourou.spark.sink.sink_start import check_reachable
from kourou.spark.source.options import SourceOptions
from kourou.spark.source.queue_lookup import QueueLookup
from kourou.spark.source.source_client import SourceClient, shared_client


def check_servers(spec: PipelineSpec, mistakes: Mistakes) -> None:
    """Add the name servers and topics that cannot be reached; parts with other mistakes are skipped."""
    away: set[str] = set()
    for source in spec.topics:
        if "store" not in source.options:
            _check(source.line, f"source {source.name}", _source_problem, source.options, away, mistakes)
    for sink in spec.sinks:
        if isinstance(sink, TopicSink):
            _check(sink.rows.line, f"sink {sink.rows.name}", _sink_problem, sink.options, away, mistakes)
    bad = spec.bad_records
    if bad.topic_options is not None:
        _check(bad.line, "badRecords", _sink_problem, bad.topic_options, away, mistakes)


def find_queues(client: SourceClient, options: SourceOptions) -> list[MessageQueue]:
    """The queues that a source reads now. NoRouteError for a missing topic names the nearest one, or lists
    the topics."""
    try:
        return QueueLookup(client, options).queues()
    except NoRouteError as error:
        # Suggest system topics only for names of that kind.
        is_inner = is_inner_topic(error.topic)
        known = sorted(topic for topic in client.topic_names() if is_inner_topic(topic) == is_inner)
        if wording.nearest(error.topic, known) is not None:
            raise
        raise NoRouteError(error.topic, f"{error.reason}; {nearest(error.topic, known)}") from error


def _check(
    line: int,
    what: str,
    problem_of: Callable[[Mapping[str, str]], str | None],
    options: Mapping[str, str],
    away: set[str],
    mistakes: Mistakes,
) -> None:
    namesrv = options.get("namesrv", "")
    if namesrv in away:  # reported already; another timeout would add nothing
        return
    try:
        problem = problem_of(options)
    except NoNameServerError as error:
        away.add(namesrv)
        problem = str(error)
    except KourouError as error:
        problem = str(error)
    if problem:
        mistakes.add(line, f"{what}: {problem}")


def _source_problem(options: Mapping[str, str]) -> str | None:
    try:
        parsed = SourceOptions.parse(options)
    except ConfigError:
        return None  # reported with the mistakes of the file
    queues = find_queues(shared_client(parsed.connection), parsed)
    if not queues and parsed.topic_pattern is None:
        return "its topics have no queues to read"
    return None


def _sink_problem(options: Mapping[str, str]) -> str | None:
    try:
        parsed = SinkOptions.parse(options)
    except ConfigError:
        return None
    check_reachable(parsed)
    return None
