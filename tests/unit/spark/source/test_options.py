"""The source's options: each value, and all mistakes together, with the nearest right name."""

from __future__ import annotations

import pickle

import pytest

from kourou.errors import ConfigError
from kourou.protocol.bodies import MessageQueue
from kourou.spark.source.offset_spec import EARLIEST_SPEC, LATEST_SPEC, OffsetSpec
from kourou.spark.source.offsets import EARLIEST, LATEST
from kourou.spark.source.options import SourceOptions

BASE = {"namesrv": "127.0.0.1:9876", "subscribe": "orders"}


def parse(**options: str) -> SourceOptions:
    return SourceOptions.parse({**BASE, **options}, {})


def problem(**options: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse(**options)
    return str(caught.value)


def test_defaults() -> None:
    options = parse()
    assert options.topics == ("orders",)
    assert options.starting is None and options.ending == LATEST_SPEC
    assert options.fail_on_data_loss
    assert options.max_offsets_per_trigger is None and options.max_bytes_per_trigger is None
    assert options.min_partitions is None
    assert not options.is_filtered
    assert options.connection.client_options()["namesrv"] == "127.0.0.1:9876"


def test_names_are_read_whatever_their_case_and_kafka_users_find_theirs() -> None:
    options = SourceOptions.parse(
        {
            "NAMESERVER": "a:1;b:2",
            "SUBSCRIBE": "orders, payments ,orders",
            "startingoffsets": "Earliest",
            "FailOnDataLoss": "false",
            "maxoffsetspertrigger": "1000",
            "maxBytesPerTrigger": "64m",
            "minpartitions": "8",
        },
        {},
    )
    assert options.topics == ("orders", "payments")
    assert options.starting == EARLIEST_SPEC
    assert not options.fail_on_data_loss
    assert options.max_offsets_per_trigger == 1000
    assert options.max_bytes_per_trigger == 64 * 1024 * 1024
    assert options.min_partitions == 8
    assert options.connection.namesrv == "a:1;b:2"


def test_the_environment_names_the_name_server_where_no_option_does() -> None:
    options = SourceOptions.parse({"subscribe": "orders"}, {"NAMESRV_ADDR": "mq:9876"})
    assert options.connection.namesrv == "mq:9876"


def test_offsets_of_each_queue() -> None:
    text = '{"orders": {"broker-a": {"0": 17, "1": "earliest", "2": -1}, "broker-b": {"0": 0}}}'
    options = parse(startingOffsets=text)
    assert options.starting is not None
    assert options.starting.offsets == {
        MessageQueue("orders", "broker-a", 0): 17,
        MessageQueue("orders", "broker-a", 1): EARLIEST,
        MessageQueue("orders", "broker-a", 2): LATEST,
        MessageQueue("orders", "broker-b", 0): 0,
    }


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        ("1700000000000", 1_700_000_000_000),
        ("2023-11-14T22:13:20+00:00", 1_700_000_000_000),
        ("2023-11-14 22:13:20", 1_700_000_000_000),
        ("2023-11-14T23:13:20.500+01:00", 1_700_000_000_500),
    ],
)
def test_timestamps(text: str, expected_ms: int) -> None:
    assert parse(startingTimestamp=text).starting == OffsetSpec("timestamp", expected_ms)
    assert parse(endingTimestamp=text).ending == OffsetSpec("timestamp", expected_ms)


def test_a_time_for_each_queue() -> None:
    text = '{"orders": {"broker-a": {"0": 1700000000000, "1": "2023-11-14T22:13:20.500+00:00"}}}'
    expected = OffsetSpec(
        "timestamps",
        timestamps_ms={
            MessageQueue("orders", "broker-a", 0): 1_700_000_000_000,
            MessageQueue("orders", "broker-a", 1): 1_700_000_000_500,
        },
    )
    assert parse(startingOffsetsByTimestamp=text).starting == expected
    assert parse(endingOffsetsByTimestamp=text).ending == expected


@pytest.mark.parametrize(
    ("text", "expected_ms"), [("1500", 1_500), ("90s", 90_000), ("15 min", 900_000), ("2H", 7_200_000)]
)
def test_small_batches_wait(text: str, expected_ms: int) -> None:
    options = parse(minOffsetsPerTrigger="1000", maxTriggerDelay=text)
    assert (options.min_offsets_per_trigger, options.max_trigger_delay_ms) == (1_000, expected_ms)
    assert parse(minOffsetsPerTrigger="1000").max_trigger_delay_ms == 15 * 60_000


def test_assign() -> None:
    options = SourceOptions.parse({"namesrv": "n:1", "assign": '{"a": {"broker-a": [1, 0]}, "b": [2]}'}, {})
    assert options.queues == (
        MessageQueue("a", "broker-a", 0),
        MessageQueue("a", "broker-a", 1),
        MessageQueue("b", "", 2),
    )


def test_credentials_are_not_printed_and_options_survive_pickling() -> None:
    options = parse(accessKey="ak", secretKey="very secret")
    assert "very secret" not in repr(options)
    assert pickle.loads(pickle.dumps(options)) == options


def test_an_unknown_option_names_the_nearest_right_one() -> None:
    assert "unknown option 'startingoffset'; did you mean startingOffsets?" in problem(startingOffset="x")
    assert "unknown option 'zzz'; see" in problem(zzz="x")
    assert "unknown option 'kafka.bootstrap.servers'; did you mean namesrv?" in problem(
        **{"kafka.bootstrap.servers": "x"}
    )
    assert "unknown option 'path'; use load() without a path" in problem(path="orders")


def test_all_mistakes_are_reported_together() -> None:
    text = problem(
        startingOffsets='{"orders": {"broker-a": {"0": "soon"}}}',
        endingTimestamp="tomorrow",
        failOnDataLoss="perhaps",
        minPartitions="0",
        maxBytesPerTrigger="12x",
        rowFormat="avro",
        accessKey="alone",
        topik="orders",
    )
    for part in (
        "unknown option 'topik'",
        "queue '0' of broker 'broker-a', topic 'orders': 'soon' is not an offset",
        "option endingTimestamp='tomorrow'",
        "option failOnDataLoss='perhaps': must be true or false",
        "option minPartitions='0': must be a number from 1",
        "option maxBytesPerTrigger='12x'",
        "must be one of rocketmq, kafka",
        "accessKey and secretKey belong together",
    ):
        assert part in text
    assert text.startswith("the rocketmq source cannot be used: ")


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"subscribePattern": "o.*"}, "subscribe and subscribePattern are mutually exclusive"),
        ({"subscribe": "a b"}, "contains ' '"),
        ({"subscribe": " , "}, "no topic is named"),
        ({"startingOffsets": "soon"}, "must be earliest, latest, or JSON"),
        ({"startingOffsets": "{oops"}, "not valid JSON"),
        ({"startingOffsets": '{"orders": {"0": 1}}'}, "the format is"),
        ({"startingOffsets": '{"orders": {"b": {"-1": 1}}}'}, "a queue id must be a number"),
        ({"startingOffsets": '{"orders": {"b": {"0": -3}}}'}, "-3 is not an offset"),
        ({"startingOffsets": '{"orders": {"b": {"0": true}}}'}, "True is not an offset"),
        ({"startingOffsets": "{}"}, "no queue is named"),
        ({"startingOffsetsByTimestamp": "1700000000000"}, "the format is"),
        (
            {"startingOffsetsByTimestamp": '{"orders": {"b": {"0": "soon"}}}'},
            "'soon' is not a time; it is a number",
        ),
        ({"endingOffsetsByTimestamp": '{"orders": {"b": {"0": -1}}}'}, "-1 is not a time"),
        ({"startingTimestamp": "1794948102"}, "milliseconds since 1970: 1794948102 looks like seconds"),
        (
            {"startingOffsetsByTimestamp": '{"orders": {"b": {"0": 1794948102}}}'},
            "milliseconds since 1970: 1794948102 looks like seconds",
        ),
        ({"endingOffsetsByTimestamp": "{}", "endingTimestamp": "1"}, "are mutually exclusive"),
        ({"minOffsetsPerTrigger": "2", "maxOffsetsPerTrigger": "1"}, "is greater than maxOffsetsPerTrigger"),
        ({"maxTriggerDelay": "1h"}, "needs minOffsetsPerTrigger"),
        ({"minOffsetsPerTrigger": "2", "maxTriggerDelay": "soon"}, "a duration such as 500ms"),
        ({"subExpression": "||"}, "names no tag"),
        ({"subExpression": "a >", "expressionType": "SQL92"}, "unexpected end at position 4"),
        ({"store": "folder", "startingOffsetsByTimestamp": "{}"}, "cannot be used with the store source"),
        ({"startingOffsets": "latest", "startingTimestamp": "1"}, "are mutually exclusive"),
        ({"expressionType": "SQL92"}, "needs a subExpression"),
        ({"pushFilters": "true"}, "unknown option 'pushfilters'; Spark applies the filters of one use"),
        ({"groupId": "a b"}, "option groupId"),
        ({"batchBytes": "3g"}, "must be at most 268435456 bytes"),
    ],
)
def test_single_mistakes(options: dict[str, str], part: str) -> None:
    assert part in problem(**options)


@pytest.mark.parametrize(
    ("begin", "end", "part"),
    [
        (
            {"startingTimestamp": "2026-02-01"},
            {"endingTimestamp": "2026-01-01T00:00:00+00:00"},
            "the read would end at 2026-01-01T00:00:00+00:00, before it begins at 2026-02-01T00:00:00+00:00",
        ),
        (
            {"startingOffsetsByTimestamp": '{"orders": {"broker-a": {"1": 2000}}}'},
            {"endingTimestamp": "1000"},
            "orders/broker-a/1: the read would end at 1970-01-01T00:00:01+00:00, before it begins at",
        ),
        (
            {"startingTimestamp": "2000"},
            {"endingOffsetsByTimestamp": '{"orders": {"broker-a": {"1": 1000}}}'},
            "orders/broker-a/1: the read would end at",
        ),
        (
            {"startingOffsets": '{"orders": {"broker-a": {"0": 7, "1": 7}}}'},
            {"endingOffsets": '{"orders": {"broker-a": {"0": 7, "1": 6}}}'},
            "orders/broker-a/1: the read would end at offset 6, before it begins at offset 7",
        ),
    ],
)
def test_a_reversed_range_is_refused(begin: dict[str, str], end: dict[str, str], part: str) -> None:
    assert part in problem(**begin, **end)
    parse(**begin)
    parse(**end)


def test_a_range_of_nothing_and_words_in_a_range_are_allowed() -> None:
    parse(startingTimestamp="1000", endingTimestamp="1000")
    queue = '{"orders": {"broker-a": {"0": %s}}}'
    parse(startingOffsets=queue % '"latest"', endingOffsets=queue % 6)
    parse(startingOffsets=queue % 6, endingOffsets=queue % '"latest"')


@pytest.mark.parametrize("text", ["[]", "{}", '{"a": "b"}', '{"a": [-1]}', '{"a": {"b": [true]}}', "nope"])
def test_assign_that_is_none(text: str) -> None:
    with pytest.raises(ConfigError, match="option assign"):
        SourceOptions.parse({"namesrv": "n:1", "assign": text}, {})


def test_a_pattern_that_is_none_and_nothing_to_read() -> None:
    with pytest.raises(ConfigError, match="not a valid regular expression"):
        SourceOptions.parse({"namesrv": "n:1", "subscribePattern": "("}, {})
    with pytest.raises(ConfigError, match="(?s)namesrv is missing.*|nothing to read"):
        SourceOptions.parse({}, {})
    assert SourceOptions.parse({"store": "folder"}, {}).store == "folder"
