"""Options and columns of the sink, with all mistakes reported together."""

from __future__ import annotations

import pickle

import pytest

from kourou.client.core.credentials import Credentials
from kourou.errors import ConfigError
from kourou.spark.sink.sink_options import SinkOptions
from tests.spark.kit.sink_kit import INT, pickles, schema_of, types

from kourou.spark.sink.data_sink import batch_writer, stream_writer  # isort: skip (the kit skips without PySpark)
from kourou.spark.sink.sink_columns import SinkColumns  # isort: skip

NAMESRV = {"namesrv": "127.0.0.1:9876"}


def parse(**options: str) -> SinkOptions:
    return SinkOptions.parse({**NAMESRV, **options}, {})


def problems(**options: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse(**options)
    return str(caught.value)


def test_defaults() -> None:
    assert parse() == SinkOptions(namesrv="127.0.0.1:9876")


def test_all_options_in_any_case() -> None:
    parsed = parse(
        TOPIC="Orders",
        errortopic="Errors",
        producerGroup="writers",
        guarantee="At-Least-Once",
        maxMessageBytes="8m",
        batchBytes="64k",
        batchRows="10",
        maxInFlightBytes="1m",
        sendTimeoutMs="500",
        retryTimes="0",
        retryIntervalMs="10",
        dropReservedProperties="TRUE",
        accessKey="ak",
        secretKey="sk",
        securityToken="st",
        namespace="shop",
        tls="true",
    )
    assert parsed == SinkOptions(
        namesrv="127.0.0.1:9876",
        topic="Orders",
        error_topic="Errors",
        producer_group="writers",
        max_message_bytes=8 * 1024 * 1024,
        batch_bytes=64 * 1024,
        batch_rows=10,
        max_in_flight_bytes=1024 * 1024,
        send_timeout_ms=500,
        retry_times=0,
        retry_interval_ms=10,
        drop_reserved_properties=True,
        credentials=Credentials("ak", "sk", "st"),
        namespace="shop",
        tls=True,
    )
    assert "sk" not in repr(parsed) and "'st'" not in repr(parsed)
    assert pickle.loads(pickle.dumps(parsed)) == parsed
    assert hash(pickle.loads(pickle.dumps(parsed))) == hash(parsed)


def test_the_environment_names_the_name_server() -> None:
    assert SinkOptions.parse({}, {"NAMESRV_ADDR": "10.0.0.1:9876"}).namesrv == "10.0.0.1:9876"
    assert SinkOptions.parse(NAMESRV, {"NAMESRV_ADDR": "10.0.0.1:9876"}).namesrv == "127.0.0.1:9876"
    assert SinkOptions.parse({"nameServer": "10.0.0.2:9876"}, {}).namesrv == "10.0.0.2:9876"


def test_pauses_grow_and_end() -> None:
    assert list(parse(retryTimes="7", retryIntervalMs="200").pauses_s()) == [
        0.2,
        0.4,
        0.8,
        1.6,
        3.2,
        5.0,
        5.0,
    ]
    assert list(parse(retryTimes="0").pauses_s()) == []


def test_options_of_spark_itself_are_passed_over() -> None:
    parse(checkpointLocation="/somewhere", queryName="q", asyncProgressTrackingEnabled="true")


def test_all_mistakes_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        SinkOptions.parse(
            {
                "topik": "Orders",
                "errorTopic": "no good",
                "retryTimes": "-1",
                "tls": "maybe",
                "secretKey": "sk",
                "guarantee": "exactly-twice",
                "path": "/somewhere",
            },
            {},
        )
    text = str(caught.value)
    assert len(caught.value.problems) == 8, text
    for piece in (
        "unknown option 'topik'; did you mean topic?",
        "errorTopic='no good': ",
        "retryTimes='-1': ",
        "tls='maybe': ",
        "accessKey and secretKey belong together",
        "guarantee='exactly-twice': ",
        "unknown option 'path'; the sink writes to topics",
        "the option namesrv is missing",
    ):
        assert piece in text


def test_exactly_once() -> None:
    given = {
        "guarantee": "Exactly-Once",
        "sinkId": "loads.7",
        "writeId": "2026-11-18",
        "stageTimeoutMs": "2h",
    }
    parsed = parse(**given, replaceQuery="query-1")
    assert parsed.is_exactly_once
    assert (parsed.sink_id, parsed.write_id, parsed.replace_query) == ("loads.7", "2026-11-18", "query-1")
    assert parsed.stage_timeout_ms == 2 * 3_600_000
    assert "must be a duration up to 24h" in problems(**{**given, "stageTimeoutMs": "25h"})
    assert "option writeId: only with guarantee=exactly-once" in problems(writeId="1")
    assert "must be 1 to 200 characters" in problems(**{**given, "writeId": ""})


def test_topics_that_only_brokers_write_are_refused() -> None:
    assert "is written by brokers only" in problems(topic="SCHEDULE_TOPIC_XXXX")


@pytest.mark.parametrize(
    "names", [["value"], ["body"], ["VALUE", "Key"], ["value", "keys", "tags", "delay_ms"]]
)
def test_columns_under_their_names(names: list[str]) -> None:
    kinds = {name: schema_of([name.lower()]).fields[0].dataType for name in names}
    assert "value" in SinkColumns.of(schema_of(names, kinds), "Orders").positions


def test_all_mistakes_in_columns_at_once() -> None:
    schema = schema_of(
        ["val", "tags", "queue_id", "sharding_key", "key", "keys"], {"val": INT, "tags": types.DateType()}
    )
    with pytest.raises(ConfigError) as caught:
        SinkColumns.of(schema, None)
    text = str(caught.value)
    for piece in (
        "column val: not part of a message; did you mean value?",
        "column tags: its type is date, but must be string",
        "column keys: another column is already used for keys",
        "column value (or body): missing",
        'topic: set option("topic", …) or add a column topic',
        "columns queue_id and sharding_key: use only one of them",
    ):
        assert piece in text


def test_a_value_that_is_no_text_has_an_error_that_says_how_to_convert_it() -> None:
    schema = schema_of(["value"], {"value": types.StructType([types.StructField("a", INT)])})
    with pytest.raises(ConfigError, match=r"column value: its type is struct<a:int>.*to_json"):
        SinkColumns.of(schema, "Orders")


def test_a_column_of_a_wrong_type_is_not_missing_too() -> None:
    with pytest.raises(ConfigError) as caught:
        stream_writer(schema_of(["value", "topic"], {"value": INT, "topic": INT}), NAMESRV, False)
    assert caught.value.problems == (
        "the rocketmq sink cannot be used: column value: its type is int, but must be string or binary; "
        "use to_json(struct(…)) or cast it",
        "column topic: its type is int, but must be string",
    )


def test_a_broker_needs_a_queue() -> None:
    with pytest.raises(ConfigError, match="column broker: requires the column queue_id"):
        SinkColumns.of(schema_of(["value", "broker"]), "Orders")


def test_mistakes_in_options_and_columns_come_together() -> None:
    with pytest.raises(ConfigError) as caught:
        stream_writer(schema_of(["tags"]), {**NAMESRV, "retries": "3"}, False)
    assert "did you mean retryTimes?" in str(caught.value)
    assert "column value (or body): missing" in str(caught.value)
    assert 'topic: set option("topic"' in str(caught.value)


def test_a_topic_cannot_be_overwritten() -> None:
    with pytest.raises(ConfigError, match="append"):
        batch_writer(schema_of(["value"]), {**NAMESRV, "topic": "Orders"}, True)
    with pytest.raises(ConfigError, match="update"):
        stream_writer(schema_of(["value"]), {**NAMESRV, "topic": "Orders"}, True)


def test_a_stream_writer_is_made_without_a_connection_and_travels() -> None:
    writer = stream_writer(schema_of(["value"]), {"namesrv": "127.0.0.1:1", "topic": "Orders"}, False)
    assert type(pickles.loads(pickles.dumps(writer))) is type(writer)
