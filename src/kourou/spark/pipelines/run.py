"""`kourou pipeline run`: a declared pipeline from its file to its end.

The file is checked first, then the servers; only then Spark starts, the modules of steps are imported, and
every source, step and sink is built before the first row is read. Then each sink is a query of its own, or,
without a stream, is written once.

Bad records become messages of a dead-letter topic, or lines in a folder. In the topic a bad record is the
original message, body, keys and tag, with properties that say where it came from and why. In the folder it is
a line of JSON; `value` is the body in Base64.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kourou.errors import ConfigError, KourouError
from kourou.spark.pipelines.check.checking import load_pipeline
from kourou.spark.pipelines.check.document import PipelineFileError
from kourou.spark.pipelines.check.reachable import check_servers
from kourou.spark.pipelines.check.spec import PipelineSpec, PythonStep
from kourou.spark.pipelines.describe_failure import describe_failure
from kourou.spark.pipelines.jdbc import describe_java_error
from kourou.spark.pipelines.pipeline_errors import PipelineError, short_reason
from kourou.spark.pipelines.pipeline_session import pipeline_session
from kourou.spark.pipelines.pipeline_watch import PipelineWatch, TotalProgress
from kourou.spark.pipelines.progress import Breakdown, ProgressOutput, SinkRows, Summary
from kourou.spark.pipelines.query_watch import OBSERVED_ROWS
from kourou.spark.pipelines.sinks import SinkRun, observed, stream_writer
from kourou.spark.pipelines.sources import read_source
from kourou.spark.pipelines.step_functions import import_steps, run_step
from kourou.spark.pipelines.topic_guarantee import guaranteed_options
from kourou.spark.source.progress_publisher import ProgressPublisher
from kourou.spark.source.source_client import close_shared_clients

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_BAD_PREFIX: Final = "bad-records-"
BAD_RECORD_PROPERTIES: Final = {
    "bad_pipeline": "pipeline",
    "bad_source": "source",
    "bad_topic": "topic",
    "bad_broker": "broker",
    "bad_queue_id": "queue_id",
    "bad_queue_offset": "queue_offset",
    "bad_reason": "reason",
}
"""Properties of a message in the dead-letter topic, by column."""


@dataclass(frozen=True, slots=True)
class RunRequest:
    """The arguments of the command."""

    file: Path
    master: str | None = None
    check_only: bool = False
    as_json: bool = False
    publish_to: str | None = None
    """Name servers of the cluster to which progress is published; None: it is not."""


def run_pipeline(request: RunRequest) -> None:
    """Run a pipeline to its end. KourouError for mistakes in the file, or a failed run."""
    try:
        spec = load_pipeline(request.file, check=check_servers)
        if request.check_only:
            _print_valid(request, spec)
            return
        run_spec(spec, request)
    except PipelineFileError as error:
        if request.check_only and request.as_json:
            found = [{"line": line, "problem": what} for line, what in error.mistakes]
            print(json.dumps({"type": "check", "ok": False, "file": error.file, "mistakes": found}))
        raise
    finally:
        close_shared_clients()


def _print_valid(request: RunRequest, spec: PipelineSpec) -> None:
    counts = {"sources": len(spec.sources), "steps": len(spec.steps), "sinks": len(spec.sinks)}
    if request.as_json:
        told = {"type": "check", "ok": True, "file": str(request.file), "mistakes": [], **counts}
        print(json.dumps(told))
    else:
        print(
            f"{request.file}: no mistakes; " + ", ".join(f"{count} {name}" for name, count in counts.items())
        )


def run_spec(spec: PipelineSpec, request: RunRequest) -> Summary:
    """Start Spark, and run a checked pipeline."""
    output = ProgressOutput.standard(as_json=request.as_json)
    settings = dict(spec.settings)
    master = request.master or settings.pop("spark.master", None) or "local[*]"
    if spec.jars:
        given = settings.get("spark.jars")
        settings["spark.jars"] = ",".join([*spec.jars, *([given] if given else [])])
    with pipeline_session(f"kourou {spec.name}", master=master, settings=settings) as spark:
        run = PipelineRun(spark, spec, as_json=request.as_json)
        try:
            with (
                _published(spark, spec.name, request.publish_to),
                TotalProgress(spec.name, output) as progress,
            ):
                run.prepare()
                return run.stream(progress) if spec.is_stream else run.batch(progress)
        finally:
            run.forget()


@contextmanager
def _published(spark: SparkSession, name: str, namesrv: str | None) -> Iterator[None]:
    """Publish the progress of the session's streams, if there is a cluster to publish to."""
    if namesrv is None:
        yield
        return
    publisher = ProgressPublisher(namesrv, application=name)
    spark.streams.addListener(publisher)
    try:
        yield
    finally:
        spark.streams.removeListener(publisher)
        publisher.close()


class PipelineRun:
    """A pipeline in a session."""

    def __init__(self, spark: SparkSession, spec: PipelineSpec, *, as_json: bool = False) -> None:
        self._spark = spark
        self._spec = spec
        self._as_json = as_json
        self._sinks: list[SinkRun] = []
        self._bad: dict[str, DataFrame] = {}
        self.frames: dict[str, DataFrame] = {}

    def prepare(self) -> None:
        """Create all DataFrames and their views. PipelineError names the line of whatever Spark rejects."""
        spec = self._spec
        self._make_importable()
        calls = import_steps(spec)
        for source in spec.sources:
            with self._at(source.line, f"source {source.name}"):
                found = read_source(self._spark, source, spec)
                self._add(source.name, found.rows)
                if found.bad is not None:
                    bad = name_bad_records(found.bad, pipeline=spec.name, source=source.name)
                    self._bad[source.name] = bad
        for step in spec.steps:
            with self._at(step.line, f"step {step.name}"):
                self._add(step.name, run_step(self._spark, step, self.frames, calls))
        self._prepare_sinks()

    def _prepare_sinks(self) -> None:
        mistakes: list[tuple[int, str]] = []
        for sink in self._spec.sinks:
            rows = sink.rows
            frame = self.frames[rows.origin]
            if self._spec.is_stream and not frame.isStreaming:
                words = f"{rows.origin} is not a stream, but the pipeline is: it would be written only once"
                mistakes.append((rows.line, f"sink {rows.name}: {words}"))
                continue
            try:
                with self._at(rows.line, f"sink {rows.name}"):
                    self._sinks.append(SinkRun(sink, frame, self._spec, as_json=self._as_json))
            except ConfigError as error:
                mistakes.append((rows.line, str(error).partition(": ")[2]))
        if mistakes:
            raise PipelineFileError(str(self._spec.file), mistakes)

    def forget(self) -> None:
        """Drop the views: a shared session may use their names otherwise."""
        from py4j.protocol import Py4JError

        with suppress(Py4JError, OSError):  # the session has ended
            for name in self.frames:
                self._spark.catalog.dropTempView(name)

    def _add(self, name: str, frame: DataFrame) -> None:
        self.frames[name] = frame
        frame.createOrReplaceTempView(name)

    def _make_importable(self) -> None:
        """Make modules beside the file importable in workers, as functions of steps are pickled by name."""
        if any(isinstance(step, PythonStep) for step in self._spec.steps):
            environment = self._spark.sparkContext.environment
            paths = [str(self._spec.file.parent), environment.get("PYTHONPATH", "")]
            environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)

    @contextmanager
    def _at(self, line: int, what: str) -> Iterator[None]:
        """Errors inside are reported with their line."""
        from py4j.protocol import Py4JError, Py4JJavaError
        from pyspark.errors import PySparkException

        place = f"{self._spec.file}:{line}: {what}: "
        try:
            yield
        except ConfigError as error:
            raise ConfigError(*(f"{place}{problem}" for problem in error.problems)) from error
        except Py4JJavaError as error:
            raise PipelineError(f"{place}{describe_java_error(error)}") from error
        except (PySparkException, Py4JError, KourouError, ImportError) as error:
            raise PipelineError(f"{place}{short_reason(error)}") from error

    # -- running ---------------------------------------------------------------------------------

    def stream(self, progress: TotalProgress) -> Summary:
        """Run all sinks until they end. PipelineError if one fails; the others are stopped then."""
        # Bad records first: each stream resolves `latest` by itself, and no record may fall between them.
        beside = {f"{_BAD_PREFIX}{name}": bad for name, bad in self._bad.items()}
        starts = {
            name: partial(
                self._started, self._spec.bad_records.line, name, partial(self._start_bad, name, bad)
            )
            for name, bad in beside.items()
        }
        for sink, spec in zip(self._sinks, self._spec.sinks, strict=True):
            starts[sink.name] = partial(self._started, spec.rows.line, f"sink {sink.name}", sink.start)
        written = {sink.name: sink.written for sink in self._sinks if sink.written is not None}
        bad_to = self._spec.bad_records.destination
        watching = PipelineWatch(
            starts, beside, progress, written, self._spec.steps, bad_records_to=bad_to if beside else ""
        )
        with watching as watch:
            watch.start()
            return watch.wait()

    def _started(self, line: int, what: str, start: Callable[[], StreamingQuery]) -> StreamingQuery:
        with self._at(line, what):
            return start()

    def _start_bad(self, name: str, bad: DataFrame) -> StreamingQuery:
        from pyspark.sql import functions as F

        options, folder = self._spec.bad_records.topic_options, self._spec.bad_records.folder
        if options is not None:
            messages = bad_record_messages(bad)
            assert self._spec.checkpoint is not None  # checked with the file
            place = self._spec.checkpoint / name
            options = guaranteed_options(options, None, checkpoint=place, columns=messages.columns)
            return stream_writer(messages, self._spec, name).format("rocketmq").options(**options).start()
        lines = bad_record_lines(bad).observe(OBSERVED_ROWS, F.count(F.lit(1)).alias("rows"))
        return stream_writer(lines, self._spec, name).format("json").option("path", folder).start()

    def batch(self, progress: TotalProgress) -> Summary:
        """Write all sinks once, one after the other, and bad records last."""
        rows = []
        for sink, spec in zip(self._sinks, self._spec.sinks, strict=True):
            with self._at(spec.rows.line, f"sink {sink.name}"):
                written = self._written(sink)
                rows.append(SinkRows(sink.name, None, written))
                progress.add(written or 0, note=sink.name)
        counts = []
        for name, bad in self._bad.items():
            with self._at(self._spec.bad_records.line, f"badRecords of {name}"):
                counts.append(self._write_bad(bad))
        bad_records = None if None in counts else sum(filter(None, counts))
        bad_to = self._spec.bad_records.destination if self._bad else ""
        progress.breakdown = Breakdown(rows, bad_records, bad_to)
        return progress.finish()

    def _written(self, sink: SinkRun) -> int | None:
        from pyspark.errors import PySparkException

        try:
            return sink.write()
        except PySparkException as error:
            raise PipelineError(describe_failure(str(error), self._spec.steps)) from error

    def _write_bad(self, bad: DataFrame) -> int | None:
        """Write bad records; returns their number, if Spark reports it."""
        options, folder = self._spec.bad_records.topic_options, self._spec.bad_records.folder
        counted, count = observed(bad)
        if options is not None:
            messages = bad_record_messages(counted)
            messages.write.format("rocketmq").options(**options).mode("append").save()
        else:
            bad_record_lines(counted).write.mode("append").json(folder)
        return count()


def name_bad_records(bad: DataFrame, *, pipeline: str, source: str) -> DataFrame:
    """Bad records with the names of pipeline and source."""
    from pyspark.sql import functions as F

    return bad.select(F.lit(pipeline).alias("pipeline"), F.lit(source).alias("source"), *bad.columns)


def bad_record_messages(bad: DataFrame) -> DataFrame:
    """Rows for the sink `rocketmq`."""
    from pyspark.sql import functions as F

    pairs = [part for name, column in BAD_RECORD_PROPERTIES.items() for part in (F.lit(name), _text(column))]
    # Brokers reject an empty body: send a space instead.
    body = F.when(F.length("value") == 0, F.lit(b" ")).otherwise(F.col("value"))
    return bad.select(body.alias("value"), "key", "tags", F.create_map(*pairs).alias("properties"))


def bad_record_lines(bad: DataFrame) -> DataFrame:
    """Rows for files of JSON."""
    from pyspark.sql import functions as F

    text = F.col("value").cast("string")
    return bad.withColumn("text", F.when(F.is_valid_utf8(text), text))


def _text(name: str) -> Column:
    from pyspark.sql import functions as F

    # A property needs a value: a store has no broker name.
    return F.coalesce(F.col(name).cast("string"), F.lit("?"))
