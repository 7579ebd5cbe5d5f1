"""Pipelines' files checked without Spark: what they mean, and every mistake at once with its line."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kourou.spark.pipelines.check.document import Mistakes, PipelineFileError
from tests.needed import need_module

need_module("yaml")
need_module("pyarrow")

from kourou.spark.pipelines.check.checking import load_pipeline  # noqa: E402
from kourou.spark.pipelines.check.spec import (  # noqa: E402
    ConsoleSink,
    JdbcSink,
    JdbcSource,
    LakeSink,
    LakeSource,
    PipelineSpec,
    PythonStep,
    SqlStep,
    TopicSink,
)

Check = Callable[[PipelineSpec, Mistakes], None]

RIGHT = """\
name: orders
namesrv: ${NAMESRV:-127.0.0.1:9876}
sources:
  orders:
    topic: [orders, orders-old]
    value: {format: json, schema: "id string NOT NULL, amount double, at timestamp"}
    columns: [key, property_region string as region]
    watermark: {column: at, delay: 10 minutes}
    maxOffsetsPerTrigger: 1000
    startingOffsets: {orders: {broker-a: {0: 5}}}
  customers: {parquet: customers}
  prices: {jdbc: "jdbc:h2:mem:x", dbtable: prices, user: me}
steps:
  - name: enriched
    sql: SELECT * FROM orders o JOIN customers USING (id)
  - name: cleaned
    python: some_steps:clean
sinks:
  - {topic: out, key: id, properties: [amount], value: {json: [id, amount]}, batchRows: 10}
  - {from: enriched, delta: lake/orders, partitionBy: day, mergeSchema: true}
  - {from: enriched, jdbc: "jdbc:h2:mem:x", dbtable: out, guarantee: at-least-once}
  - {from: orders, console: true, numRows: 5, mode: update}
badRecords: {topic: bad}
trigger: {processingTime: 10 seconds}
checkpoint: state/orders
spark: {spark.sql.shuffle.partitions: 4}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with what files name."""
    (tmp_path / "customers").mkdir()
    (tmp_path / "some_steps.py").write_text(
        "def clean(frame): return frame\ndef both(spark, frames): return frames['a']\n"
        "def wrong(): pass\nnumber = 5\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(__import__("sys").modules, "some_steps", raising=False)
    return tmp_path


def load(folder: Path, text: str, check: Check | None = None, **environ: str) -> PipelineSpec:
    file = folder / "p.yaml"
    file.write_text(textwrap.dedent(text))
    return load_pipeline(file, environ, check=check)


def mistakes(folder: Path, text: str, check: Check | None = None, **environ: str) -> list[tuple[int, str]]:
    with pytest.raises(PipelineFileError) as caught:
        load(folder, text, check, **environ)
    assert all(line.startswith(str(folder / "p.yaml")) for line in str(caught.value).splitlines())
    return caught.value.mistakes


def small(**parts: Any) -> str:
    """A pipeline that is right, but for the parts that a test gives."""
    whole = {
        "namesrv": "n:1",
        "sources": "{orders: {topic: orders}}",
        "sinks": "[{console: true}]",
        "checkpoint": "state",
        **parts,
    }
    return "".join(f"{key}: {value}\n" for key, value in whole.items() if value is not None)


def test_a_file_that_is_right(folder: Path) -> None:
    need_module("deltalake")
    spec = load(folder, RIGHT, NAMESRV="ns:9")
    orders, customers, prices = spec.sources
    assert spec.topics == [orders] and spec.is_stream
    topic = spec.topics[0]
    assert topic.options["subscribe"] == "orders,orders-old"
    assert topic.options["namesrv"] == "ns:9"
    assert topic.options["startingOffsets"] == '{"orders": {"broker-a": {"0": 5}}}'
    assert topic.value is not None and topic.value.required == ("id",)
    assert topic.value.fields == ("id", "amount", "at")
    assert [(column.name, column.type, column.alias) for column in topic.columns] == [
        ("key", "string", "key"),
        ("property_region", "string", "region"),
    ]
    assert topic.watermark is not None and topic.watermark.delay == "10 minutes"
    assert isinstance(customers, LakeSource) and customers.table.path == str(folder / "customers")
    assert isinstance(prices, JdbcSource)
    assert prices.options == {"url": "jdbc:h2:mem:x", "dbtable": "prices", "user": "me"}
    sql, python = spec.steps
    assert isinstance(sql, SqlStep) and isinstance(python, PythonStep)
    assert (python.module, python.function_name) == ("some_steps", "clean")
    assert python.before == ("orders", "customers", "prices", "enriched")
    out, lake, jdbc, console = spec.sinks
    assert isinstance(out, TopicSink) and out.rows.origin == "cleaned" and out.rows.name == "topic-out"
    assert out.message.parts == {"key": "id"} and out.message.columns == ("id", "amount")
    sending = {"namesrv": "ns:9", "createTopic": "true"}
    assert out.options == {**sending, "topic": "out", "batchRows": "10"}
    assert isinstance(lake, LakeSink) and lake.table.partition_by == ("day",) and lake.table.merge_schema
    assert isinstance(jdbc, JdbcSink) and not jdbc.exactly_once
    assert isinstance(console, ConsoleSink) and console.num_rows == 5 and console.rows.mode == "update"
    assert spec.bad_records.topic_options == {**sending, "topic": "bad"}
    assert spec.trigger == {"processingTime": "10 seconds"}
    assert spec.checkpoint == folder / "state" / "orders"
    assert spec.settings == {"spark.sql.shuffle.partitions": "4"}


def test_streams_begin_at_the_first_message_by_default(folder: Path) -> None:
    assert load(folder, small()).topics[0].options["startingOffsets"] == "earliest"
    spec = load(folder, small(sources="{orders: {topic: orders, startingOffsets: latest}}"))
    assert spec.topics[0].options["startingOffsets"] == "latest"
    spec = load(folder, small(sources="{orders: {topic: orders, startingTimestamp: 1700000000000}}"))
    assert "startingOffsets" not in spec.topics[0].options


def test_a_pipeline_without_a_stream(folder: Path) -> None:
    text = small(sources="{orders: {topic: orders, stream: false}}", checkpoint=None)
    assert not load(folder, text).is_stream
    text = small(sources="{old: {store: backup}}", checkpoint=None, sinks="[{parquet: out}]")
    spec = load(folder, text)
    assert not spec.is_stream and spec.topics[0].options["store"] == str(folder / "backup")


def test_the_name_server_may_be_in_the_environment(folder: Path) -> None:
    spec = load(folder, small(namesrv=None), NAMESRV_ADDR="e:1")
    assert spec.topics[0].options["namesrv"] == "e:1"


def test_all_mistakes_are_reported_together_with_their_lines(folder: Path) -> None:
    found = mistakes(
        folder,
        """\
        namsrv: n:1
        sources:
          orders:
            topic: orders
            namesrv: n:1
            startingOffset: earliest
            maxOffsetsPerTrigger: many
            value: {format: jsn}
          others: {parqet: x}
        steps:
          - name: enriched
            sql: SELECT * FROM ordres JOIN later ON true
          - {name: later, python: some_steps:clen, input: enrichd}
        sinks:
          - {from: entriched, topic: out, ky: id, namesrv: n:1}
          - {from: enriched, parquet: out, mode: complete}
        trigger: {availableNw: true}
        spark: {shuffle: 4}
        """,
    )
    assert found == [
        (1, "unknown key namsrv; did you mean namesrv?"),
        (1, "checkpoint is missing: the folder for the progress of streams"),
        (6, "source orders: unknown key startingOffset; did you mean startingOffsets?"),
        (7, "source orders: option maxOffsetsPerTrigger='many': must be a whole number"),
        (8, "source orders: value: format: unknown format 'jsn'; did you mean json?"),
        (
            9,
            "source others: nothing to read: set one of topic, subscribePattern, assign, store, "
            "jdbc, parquet, delta, iceberg; did you mean parquet?",
        ),
        (12, "step enriched: sql: unknown source or step ordres; did you mean orders?"),
        (12, "step enriched: sql: later is declared later; a step can only read what is declared before it"),
        (13, "step later: input: unknown source or step enrichd; did you mean enriched?"),
        (13, "step later: python: some_steps has no clen; did you mean clean?"),
        (15, "sink 1 (topic): from: unknown source or step entriched; did you mean enriched?"),
        (15, "sink 1 (topic): unknown key ky; did you mean key?"),
        (16, "sink 2 (parquet): mode: 'complete': for parquet in a stream it must be append or update"),
        (17, "trigger: availableNw: unknown trigger 'availableNw'; did you mean availableNow?"),
        (18, "spark: shuffle: Spark's settings start with spark.; did you mean spark.shuffle?"),
    ]


def test_mistakes_that_make_others_hard_to_see_do_not_hide_them(folder: Path) -> None:
    text = """\
        namesrv: n:1
        sources:
          orders: {parquet: customers}
        steps: []
        sinks:
          - {from: ordres, kind: topic}
          - {from: ordres, name: both, topic: a, console: true}
        trigger: once
        """

    def check(spec: PipelineSpec, found: Mistakes) -> None:
        assert [source.name for source in spec.sources] == ["orders"]
        found.add(3, "source orders: not there")

    assert mistakes(folder, text, check=check) == [
        (3, "source orders: not there"),
        (4, "steps: the list is empty; remove the key"),
        (
            6,
            "sink 1: nowhere to write: give one of topic, topicColumn, parquet, delta, iceberg, jdbc, "
            "console",
        ),
        (6, "sink 1: from: unknown source or step ordres; did you mean orders?"),
        (7, "sink both: console: topic and console are mutually exclusive: a sink is one of them"),
        (7, "sink both: from: unknown source or step ordres; did you mean orders?"),
        (8, "trigger: it requires a stream, and no source is one"),
    ]


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"sources": None}, "sources is missing"),
        ({"sinks": None}, "sinks is missing"),
        ({"sinks": "{console: true}"}, "sinks: must be a list (- …), not a mapping"),
        ({"sinks": "[]"}, "sinks: the list is empty"),
        ({"namesrv": None}, "the option namesrv is missing"),
        ({"sources": "{a-b: {topic: t}}"}, "a name may only have letters, digits and _"),
        ({"sources": "{a: {topic: t, parquet: x}}"}, "topic and parquet are mutually exclusive"),
        ({"sources": "{a: {topic: t/t}}"}, "source a: topic 't/t'"),
        ({"sources": "{a: {topic: t, endingOffsets: latest}}"}, "a stream has no end"),
        ({"sources": "{a: {topic: t, stream: maybe}}"}, "must be true or false"),
        ({"sources": "{a: {topic: t, pushFilters: true}}"}, "unknown key pushFilters"),
        ({"sources": "{a: {topic: t, value: {format: json, schema: x strng}}}"}, "did you mean string?"),
        ({"sources": "{a: {topic: t, value: {format: json, schemaFile: no.ddl}}}"}, "cannot read it"),
        ({"sources": "{a: {topic: t, value: {format: string, schema: x int}}}"}, "it has no effect with"),
        ({"sources": "{a: {topic: t, value: {format: avro}}}"}, "avro needs a schema"),
        (
            {"sources": "{a: {topic: t, value: {format: avro, schema: '{'}}}"},
            "Avro schema must be valid JSON",
        ),
        ({"sources": "{a: {topic: t, columns: [tgs]}}"}, "unknown column 'tgs'; did you mean tags?"),
        ({"sources": "{a: {topic: t, columns: [key, key as key]}}"}, "key is used twice"),
        ({"sources": "{a: {topic: t, watermark: {column: at, delay: 5 munites}}}"}, "did you mean minute"),
        ({"sources": "{a: {delta: nowhere}}"}, "no such file or folder"),
        ({"sources": "{a: {jdbc: 'h2:mem', dbtable: x}}"}, "is not a database URL"),
        ({"sources": "{a: {jdbc: 'jdbc:h2:mem'}}"}, "give dbtable or query"),
        ({"sources": "{a: {parquet: customers}}"}, "checkpoint: it requires a stream, and no source is one"),
        ({"steps": "[{name: x}]"}, "a step needs either sql or python"),
        ({"steps": "[{sql: SELECT 1}]"}, "name is missing"),
        ({"steps": "[{name: orders, sql: SELECT 1}]"}, "the name is already used by a source or step"),
        ({"steps": "[{name: x, sql: SELECT * FROM x}]"}, "the step reads from itself"),
        ({"steps": "[{name: x, python: nope}]"}, "the format is package.module:function"),
        ({"steps": "[{name: x, python: 'no_such_module:f'}]"}, "cannot be imported: ModuleNotFoundError"),
        ({"steps": "[{name: x, python: 'some_steps:number'}]"}, "some_steps:number is not a function"),
        ({"steps": "[{name: x, python: 'some_steps:wrong'}]"}, "must take (frame) or (spark, frames)"),
        ({"steps": "[{name: x, sql: SELECT 1, input: orders}]"}, "it only applies to python"),
        ({"sinks": "[{parquet: a/out}, {parquet: b/out}]"}, "has the same name"),
        ({"sinks": "[{from: orders}]"}, "nowhere to write"),
        ({"sinks": "[{topic: o, console: true}]"}, "topic and console are mutually exclusive"),
        ({"sinks": "[{topic: o, value: xml}]"}, "invalid value 'xml'"),
        ({"sinks": "[{topic: o, value: row, key: id}]"}, "the columns already are the parts of the message"),
        ({"sinks": "[{topic: o, batchRows: -1}]"}, "must be a number from 1"),
        ({"sinks": "[{delta: w, mode: update}]"}, "mode: update requires key: the columns by which"),
        ({"sinks": "[{iceberg: w, table: rows}]"}, "an Iceberg table needs a namespace"),
        ({"sinks": "[{jdbc: 'jdbc:h2:x'}]"}, "give dbtable: where it writes"),
        ({"sinks": "[{jdbc: 'jdbc:h2:x', dbtable: t, guarantee: twice}]"}, "invalid value 'twice'"),
        ({"sinks": "[{topic: out, guarantee: exactly, sinkId: a}]"}, "invalid value 'exactly'"),
        ({"sinks": "[{topic: out, sinkId: a}]"}, "sinkId: only with guarantee: exactly-once"),
        ({"sinks": "[{topic: out, guarantee: exactly-once, sinkId: a b}]"}, "sinkId='a b': must be 1 to 40"),
        ({"badRecords": "drop"}, "must be fail, {topic: NAME} or {folder: DIR}, not 'drop'"),
        ({"badRecords": "{folder: bad}"}, "no source declares its value"),
        ({"badRecords": "{topic: a, folder: b}"}, "use either topic or folder"),
        ({"trigger": "{continuous: 1 second}"}, "do not support continuous mode"),
        ({"trigger": "{processingTime: often}"}, "must be a duration such as 10 seconds"),
        ({"trigger": "hourly"}, "unknown trigger 'hourly'"),
        ({"jars": "no.jar"}, "jars: no such file"),
        ({"checkpoint": "s3://x/y"}, "must be a folder that this machine can access"),
    ],
)
def test_a_mistake(folder: Path, parts: dict[str, Any], words: str) -> None:
    found = mistakes(folder, small(**parts))
    assert words in "\n".join(what for _, what in found)


def test_avro_needs_its_jar(folder: Path) -> None:
    schema = '{"type": "record", "name": "o", "fields": [{"name": "id", "type": "string"}]}'
    sources = f"{{a: {{topic: t, value: {{format: avro, schema: '{schema}'}}}}}}"
    assert "avro requires Spark's module spark-avro" in mistakes(folder, small(sources=sources))[0][1]
    (folder / "spark-avro_2.13.jar").touch()
    spec = load(folder, small(sources=sources, jars="spark-avro_2.13.jar"))
    assert spec.topics[0].value is not None and spec.topics[0].value.fields == ("id",)
    assert spec.jars == (str(folder / "spark-avro_2.13.jar"),)


@pytest.mark.parametrize(("word", "trigger"), [("availableNow", "availableNow"), ("once", "once")])
def test_triggers(folder: Path, word: str, trigger: str) -> None:
    assert load(folder, small(trigger=word)).trigger == {trigger: True}
    assert load(folder, small(trigger=f"{{{word}: true}}")).trigger == {trigger: True}


def test_keys_of_access_control_come_from_the_environment_and_are_not_shown(folder: Path) -> None:
    text = """\
    namesrv: n:1
    sources:
      orders:
        {topic: orders, accessKey: a, secretKey: "${KOUROU_SECRET_KEY}", value: {format: json, schema: a int}}
    sinks:
      - {topic: out, key: a, accessKey: me, secretKey: "${KOUROU_SECRET_KEY}"}
    badRecords: {topic: bad, accessKey: ann, secretKey: "${KOUROU_SECRET_KEY}"}
    checkpoint: state
    """
    spec = load(folder, text, KOUROU_SECRET_KEY="the-secret")
    assert spec.topics[0].options["secretKey"] == "the-secret"
    assert "the-secret" not in repr(spec) + str(spec)
    wrong = text.replace("topic: orders,", "topic: orders, fetchRetries: '${KOUROU_SECRET_KEY}',")
    found = mistakes(
        folder, wrong.replace("topic: out,", "topic: out, secretKeys: s,"), KOUROU_SECRET_KEY="the-secret"
    )
    assert len(found) == 2
    assert "the-secret" not in str(found)
    assert mistakes(folder, text)[0][1].startswith("the environment variable KOUROU_SECRET_KEY is not set")
