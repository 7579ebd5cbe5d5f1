"""`kourou pipeline run` over real brokers: sources, steps, sinks, bad records, restarts, ends."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner, Result

from kourou import Message, MessageQueue, Producer
from kourou.cli.main import app
from kourou.testing import LocalCluster
from tests.needed import need_module

need_module("pyspark")
need_module("yaml")

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JSON = '{format: json, schema: "id string NOT NULL, amount double"}'


@pytest.fixture
def mq(tmp_path: Path) -> Iterator[LocalCluster]:
    with LocalCluster(store=tmp_path / "mq") as cluster:
        for topic in ("orders", "out", "bad"):
            cluster.create_topic(topic, queues=2)
        yield cluster


@pytest.fixture
def declare(tmp_path: Path, mq: LocalCluster) -> Callable[..., Path]:
    """Writes a pipeline's file; keys that are not given are those of a small one that ends by itself."""

    def write(**parts: str) -> Path:
        whole = {
            "name": "orders",
            "namesrv": mq.namesrv,
            "sources": f"{{orders: {{topic: orders, value: {JSON}}}}}",
            "sinks": "[{topic: out, key: id}]",
            "trigger": "availableNow",
            "checkpoint": "state",
            **parts,
        }
        file = tmp_path / "p.yaml"
        file.write_text("".join(f"{key}: {value}\n" for key, value in whole.items() if value))
        return file

    return write


def run(file: Path, *words: str) -> Result:
    return CliRunner().invoke(app, ["pipeline", "run", str(file), *words])


def ran(file: Path, *words: str) -> Result:
    result = run(file, *words)
    assert result.exit_code == 0, result.output
    return result


def send(mq: LocalCluster, *bodies: bytes, topic: str = "orders", **message: Any) -> None:
    """To the first queue, in order."""
    with Producer("pipelines", namesrv=mq.namesrv) as producer:
        for body in bodies:
            producer.send(Message(topic, body, **message), queue=MessageQueue(topic, "broker-a", 0))


def order(number: int, amount: float | None = None) -> bytes:
    return json.dumps({"id": f"o{number}", "amount": number if amount is None else amount}).encode()


def values(mq: LocalCluster, topic: str = "out") -> list[dict[str, Any]]:
    return [json.loads(message.body) for message in mq.messages(topic)]


# -- before Spark ----------------------------------------------------------------------------------


def test_check_says_that_all_is_right(mq: LocalCluster, declare: Callable[..., Path]) -> None:
    file = declare()
    assert ran(file, "--check").output == f"{file}: no mistakes; 1 sources, 0 steps, 1 sinks\n"
    reported = json.loads(ran(file, "--check", "--json").stdout)
    assert reported["ok"] is True and reported["mistakes"] == [] and reported["sinks"] == 1


def test_missing_topics_are_reported_with_the_nearest_name(declare: Callable[..., Path]) -> None:
    file = declare(sources="\n  a: {topic: ordrs}\n  b: {topic: nothing-like-it, namesrv: 127.0.0.1:1}")
    result = run(file)
    assert result.exit_code == 1
    first, second = result.stderr.splitlines()
    assert first.startswith(f"kourou pipeline run: {file}:4: source a: no route to topic 'ordrs'")
    assert "(did you mean orders?)" in first
    assert second.startswith(f"kourou pipeline run: {file}:5: source b: no name server can be reached: ")


def test_mistakes_as_json(declare: Callable[..., Path]) -> None:
    result = run(declare(triger="once"), "--check", "--json")
    assert result.exit_code == 1
    reported = json.loads(result.stdout)
    assert reported["ok"] is False
    assert reported["mistakes"] == [{"line": 7, "problem": "unknown key triger; did you mean trigger?"}]


# -- streams ---------------------------------------------------------------------------------------


def test_a_stream_to_a_topic_is_written_exactly_once(
    spark: SparkSession, mq: LocalCluster, declare: Callable[..., Path], tmp_path: Path
) -> None:
    """A batch that Spark has not noted as done runs again, and a new checkpoint is a new sink."""
    send(mq, order(1), order(2))
    file = declare(sinks="[{topic: out, key: id, name: copies}]")
    ran(file)
    for path in (tmp_path / "state" / "copies" / "commits").glob("*0*"):
        path.unlink()
    send(mq, order(3))
    ran(file)
    assert sorted(value["id"] for value in values(mq)) == ["o1", "o2", "o3"]
    ran(declare(sinks="[{topic: out, key: id, name: copies}]", checkpoint="another"))
    assert len(values(mq)) == 6
    plain = "[{topic: out, key: id, guarantee: at-least-once}]"
    ran(declare(sinks=plain, checkpoint="plain"))
    marks = [message.get_property("__KOUROU_ATOMIC") is not None for message in mq.messages("out")]
    assert (len(marks), sum(marks)) == (9, 6)


def test_a_stream_to_several_sinks_goes_on_where_it_was(
    spark: SparkSession, mq: LocalCluster, declare: Callable[..., Path], tmp_path: Path
) -> None:
    spark.createDataFrame([("o1", "Ada")], "id string, name string").write.parquet(str(tmp_path / "names"))
    (tmp_path / "order_steps.py").write_text(
        "from pyspark.sql.functions import col, udf\n\n\n"
        "def doubled(number):\n    return 2 * number\n\n\n"
        "def twice(spark, frames):\n"
        "    assert list(frames) == ['orders', 'names', 'joined']\n"
        "    return frames['joined'].withColumn('twice', udf(doubled, 'double')(col('amount')))\n"
    )
    file = declare(
        sources=f"\n  orders: {{topic: orders, value: {JSON}}}\n  names: {{parquet: names}}",
        steps="\n  - {name: joined, sql: 'SELECT o.id, amount, n.name, o.queue_offset FROM orders o "
        "LEFT JOIN names n ON o.id = n.id'}\n  - {name: last, python: order_steps:twice}",
        sinks="\n  - {topic: out, key: id, tags: name, properties: [amount, name]}"
        "\n  - {from: last, parquet: lake/orders}",
    )
    send(mq, order(1), order(2))
    ran(file)
    first, second = sorted(mq.messages("out"), key=lambda message: message.keys)
    assert json.loads(first.body) == {
        "id": "o1",
        "amount": 1.0,
        "name": "Ada",
        "queue_offset": 0,
        "twice": 2.0,
    }
    assert (first.tags, first.get_property("amount"), first.get_property("name")) == ("Ada", "1.0", "Ada")
    assert (second.tags, second.get_property("name")) == (None, None)
    send(mq, order(3))
    summary = json.loads(ran(file, "--json").stdout.splitlines()[-1])
    assert summary["type"] == "summary" and summary["title"] == "orders" and summary["rows"] == 2
    assert sorted(row["id"] for row in values(mq)) == ["o1", "o2", "o3"]
    for entry in (tmp_path / "state").glob("*/commits/*1*"):
        entry.unlink()
    ran(file)
    assert sorted(row["id"] for row in values(mq)) == ["o1", "o2", "o3"]
    rows = spark.read.parquet(str(tmp_path / "lake" / "orders")).orderBy("id").collect()
    assert [(row["id"], row["twice"]) for row in rows] == [("o1", 2.0), ("o2", 4.0), ("o3", 6.0)]


def test_a_summary_has_the_rows_that_were_written(
    spark: SparkSession, mq: LocalCluster, declare: Callable[..., Path]
) -> None:
    file = declare(
        steps="[{name: large, sql: 'SELECT * FROM orders WHERE amount > 2'}]",
        sinks="[{topic: out, key: id}, {parquet: lake}, {console: true}]",
    )
    send(mq, *map(order, range(5)))
    reported = "orders: 5 rows read; 2 written to topic-out, 2 to parquet-lake, 2 to console in 3 batches, "
    assert reported in ran(file).stderr
    send(mq, order(7))
    lines = [json.loads(line) for line in ran(file, "--json").stdout.splitlines()]
    assert (lines[-1]["rows"], lines[-1]["rows_written"]) == (3, 3)
    assert [sink["rows_written"] for sink in lines[-1]["sinks"]] == [1, 1, 1]
    by_sink = {line["title"]: line["rows_written"] for line in lines if line["type"] == "progress"}
    assert by_sink == {"orders/topic-out": 1, "orders/parquet-lake": 1, "orders/console": 1}
    send(mq, order(1))
    assert "orders: 1 row read; 0 written to topic-out, 0 to parquet-lake, 0 to console" in ran(file).stderr


def test_delta_and_iceberg(
    spark: SparkSession, mq: LocalCluster, declare: Callable[..., Path], tmp_path: Path
) -> None:
    need_module("deltalake")
    need_module("pyiceberg")
    file = declare(sinks="[{delta: lake/delta}, {iceberg: lake/ice, table: shop.orders}]")
    send(mq, order(1), order(2))
    ran(file)
    back = declare(
        sources="{d: {delta: lake/delta}, i: {iceberg: lake/ice, table: shop.orders}}",
        steps="[{name: both, sql: 'SELECT d.id, i.amount FROM d JOIN i ON d.id = i.id'}]",
        sinks="[{topic: out}]",
        trigger="",
        checkpoint="",
    )
    result = ran(back)
    assert sorted(row["id"] for row in values(mq)) == ["o1", "o2"]
    assert "orders: 2 rows" in result.stderr


def test_a_schema_found_in_a_sample_is_kept(
    spark: SparkSession, mq: LocalCluster, declare: Callable[..., Path], tmp_path: Path
) -> None:
    file = declare(
        sources="{orders: {topic: orders, value: json, columns: [key as k]}}", sinks="[{console: true}]"
    )
    result = run(file)
    assert result.exit_code == 1 and "the newest messages is a JSON object; declare it" in result.stderr
    send(mq, order(1), b'{"id": "o2", "key": [1]}', keys=["k1"])
    lines = [json.loads(line) for line in ran(file, "--json").stdout.splitlines()]
    rows = [line["row"] for line in lines if line["type"] == "row"]
    assert rows[0] == {"amount": 1, "id": "o1", "key": None, "k": "k1"}
    assert (tmp_path / "state" / "schemas" / "orders.ddl").exists()
    # A new field is not in the columns that the stream began with.
    send(mq, b'{"id": "o3", "more": 1}')
    lines = [json.loads(line) for line in ran(file, "--json").stdout.splitlines()]
    assert [set(line["row"]) for line in lines if line["type"] == "row"] == [{"amount", "id", "key", "k"}]


# -- bad records -----------------------------------------------------------------------------------

BAD = {
    b"\xff\xfe": "the value is not UTF-8",
    b'[{"id": "x"}]': "the value is not a JSON object",
    b'{"id": "x"} more': "the value is not a JSON object",
    b'{"id": "x", "amount": "many"}': "the value does not match the schema in amount double",
    b'{"amount": 3}': "the value has no id, which is NOT NULL",
    b'{"id": nothing}': "the value is not JSON, or does not match the schema",
}


def test_a_bad_record_ends_the_run_with_words_about_it(
    spark: SparkSession, mq: LocalCluster, declare: Callable[..., Path]
) -> None:
    send(mq, order(1), b'{"id": "x", "amount": "many"}')
    # Nothing of the value is looked at.
    file = declare(steps="[{name: some, sql: 'SELECT topic FROM orders'}]", sinks="[{topic: out}]")
    result = run(file)
    assert result.exit_code == 1
    words = (
        "kourou pipeline run: topic-out failed: source orders: topic 'orders', broker 'broker-a', queue 0, "
        "offset 1: the value does not match the schema in amount double; it has 29 bytes and begins with "
        '{"id": "x", "amount": "many"}. set badRecords to keep such records instead of failing'
    )
    assert words in result.stderr.splitlines()
    assert "Traceback" not in result.output and "\tat " not in result.output


def test_bad_records_go_to_a_topic(
    spark: SparkSession, mq: LocalCluster, declare: Callable[..., Path]
) -> None:
    send(mq, order(1), *BAD, order(2), keys=["k"], tags="T")
    file = declare(badRecords="{topic: bad}")
    assert "; 6 bad records to topic bad" in ran(file).stderr
    assert [row["id"] for row in values(mq)] == ["o1", "o2"]
    found = mq.messages("bad")
    assert {message.body: message.get_property("bad_reason") for message in found} == BAD
    for message in found:
        assert (message.keys, message.tags) == (("k",), "T")
        offset = 1 + list(BAD).index(message.body)
        assert message.get_property("bad_queue_offset") == str(offset)
        assert message.get_property("bad_pipeline") == message.get_property("bad_source") == "orders"


def test_bad_records_go_to_a_folder(
    spark: SparkSession, mq: LocalCluster, declare: Callable[..., Path], tmp_path: Path
) -> None:
    send(mq, order(1), *BAD)
    shown = ran(declare(badRecords="{folder: bad}", sinks="[{console: true}]")).stderr
    assert f"; 6 bad records to folder {tmp_path / 'bad'}" in shown
    lines = [line for path in (tmp_path / "bad").glob("*.json") for line in path.read_text().splitlines()]
    assert sorted(json.loads(line)["reason"] for line in lines) == sorted(BAD.values())


def test_texts(spark: SparkSession, mq: LocalCluster, declare: Callable[..., Path]) -> None:
    send(mq, "grün".encode(), b"\xff")
    file = declare(
        sources="{lines: {topic: orders, value: string, stream: false}}",
        sinks="[{topic: out, value: {column: value}}]",
        badRecords="{topic: bad}",
        trigger="",
        checkpoint="",
    )
    assert "orders: 1 row, " in (shown := ran(file).stderr) and "; 1 bad record to topic bad\n" in shown
    assert [message.body for message in mq.messages("out")] == ["grün".encode()]
    assert [message.body for message in mq.messages("bad")] == [b"\xff"]


# -- mistakes that Spark finds ---------------------------------------------------------------------


def test_a_mistake_in_sql_has_its_line(
    spark: SparkSession, mq: LocalCluster, declare: Callable[..., Path]
) -> None:
    file = declare(steps="\n  - {name: a, sql: 'SELECT amont FROM orders'}")
    result = run(file)
    assert result.exit_code == 1
    line = result.stderr.splitlines()[0]
    assert line.startswith(f"kourou pipeline run: {file}:8: step a: ")
    assert "`amont` cannot be resolved" in line and "`amount`" in line
    assert "\tat " not in result.output


def test_missing_columns_are_reported_for_all_sinks(
    spark: SparkSession, declare: Callable[..., Path]
) -> None:
    file = declare(sinks="\n  - {topic: out, key: idd}\n  - {parquet: lake, partitionBy: [amout]}")
    result = run(file)
    assert result.exit_code == 1
    first, second = result.stderr.splitlines()[:2]
    assert f"{file}:5: sink topic-out: key, tags and the like: its rows have no column idd; did you" in first
    assert first.endswith("did you mean id?") and second.endswith("did you mean amount?")


def test_a_step_that_raises_is_named(
    spark: SparkSession, declare: Callable[..., Path], tmp_path: Path
) -> None:
    (tmp_path / "raising_steps.py").write_text("def f(frame):\n    raise ValueError('not today')\n")
    result = run(declare(steps="[{name: a, python: raising_steps:f}]"))
    assert result.exit_code == 1
    assert "step a: raising_steps:f raised ValueError: not today" in result.stderr


# -- failures while it runs ------------------------------------------------------------------------


def test_an_error_of_a_udf_is_not_reported_as_a_bad_record(
    spark: SparkSession, mq: LocalCluster, declare: Callable[..., Path], tmp_path: Path
) -> None:
    (tmp_path / "dividing_steps.py").write_text(
        "from pyspark.sql.functions import col, udf\n\n\n@udf('double')\ndef ratio(number):\n"
        "    return 1 / number\n\n\ndef f(frame):\n    return frame.withColumn('r', ratio(col('amount')))\n"
    )
    send(mq, order(0))
    result = run(declare(steps="[{name: a, python: 'dividing_steps:f'}]"))
    assert result.exit_code == 1
    words = "step a: ZeroDivisionError: float division by zero (dividing_steps.py:6, in ratio)"
    assert f"kourou pipeline run: topic-out failed: {words}" in result.stderr.splitlines()


def test_a_column_that_the_table_lacks_is_not_reported_as_a_bad_record(
    spark: SparkSession, mq: LocalCluster, declare: Callable[..., Path], tmp_path: Path
) -> None:
    """With Derby, which comes with Spark."""
    log = str(tmp_path / "derby.log")  # else it is where the tests are run
    spark.sparkContext._jvm.System.setProperty("derby.stream.error.file", log)  # type: ignore[union-attr]
    url = f"jdbc:derby:{tmp_path / 'db'};create=true"
    table = {"url": url, "dbtable": "orders"}
    spark.createDataFrame([("o0",)], "id string").write.format("jdbc").options(**table).save()
    send(mq, order(1))
    sink = f"jdbc: '{url}', dbtable: orders"
    steps = "[{name: a, sql: 'SELECT id, amount FROM orders'}]"
    result = run(declare(sinks=f"[{{{sink}}}]", steps=steps))
    assert result.exit_code == 1
    reported = "kourou pipeline run: jdbc-orders failed: table orders has no column amount; "
    assert any(line.startswith(reported) for line in result.stderr.splitlines()), result.stderr
    # Straight into the table, the words are Spark's or the database's.
    result = run(declare(sinks=f"[{{{sink}, name: plain, guarantee: at-least-once}}]", steps=steps))
    (line,) = [line for line in result.stderr.splitlines() if "plain failed: " in line]
    assert "amount" in line and "bad record" not in line and "coalesce" not in line


def test_a_stream_with_state_goes_on_after_a_batch_that_was_written_but_not_noted(
    spark: SparkSession, mq: LocalCluster, declare: Callable[..., Path], tmp_path: Path
) -> None:
    """The repeated batch writes nothing, but its groups have to be counted. The console, too, shows only some
    of the groups."""
    from kourou.spark import parquet_files

    file = declare(
        steps="[{name: sums, sql: 'SELECT id, count(*) AS n, sum(amount) AS total FROM orders GROUP BY id'}]",
        sinks="\n  - {parquet: sums, mode: update, key: id}\n  - {console: true, mode: update, numRows: 1}",
    )
    send(mq, *(order(number % 20, 1.0) for number in range(60)))
    ran(file)
    for path in (tmp_path / "state").glob("*/commits/*0*"):
        path.unlink()
    send(mq, *(order(number, 5.0) for number in range(10)))
    ran(file)
    import pyarrow.parquet as pq

    files = parquet_files(tmp_path / "sums")
    rows = [row for path in files for row in pq.read_table(path).to_pylist()]
    assert sorted((row["id"], row["n"], row["total"]) for row in rows) == sorted(
        (f"o{number}", 4 if number < 10 else 3, 8.0 if number < 10 else 3.0) for number in range(20)
    )
