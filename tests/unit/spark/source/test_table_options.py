"""Options of catalog tables, as Spark passes them: with its own properties at creation, not at all later."""

from __future__ import annotations

import pytest

from tests.needed import need_module

need_module("pyspark")

from pyspark.sql.datasource import CaseInsensitiveDict  # noqa: E402
from pyspark.sql.types import BinaryType, StringType, StructField, StructType  # noqa: E402

from kourou.errors import ConfigError  # noqa: E402
from kourou.spark.source.data_source import RocketmqDataSource, RocketmqReader, RocketmqStreamReader  # noqa: E402
from kourou.spark.source.table_options import sink_options, source_options  # noqa: E402

# What Spark 4.3 adds to the OPTIONS of a table, and TBLPROPERTIES of the user.
PROPERTIES = {
    "provider": "rocketmq",
    "owner": "root",
    "comment": "orders",
    "location": "file:/x",
    "team": "me",
}


def creating(**options: str) -> RocketmqDataSource:
    """The source of `CREATE TABLE … USING rocketmq OPTIONS (…)`."""
    prefixed = {f"option.{name}": value for name, value in options.items()}
    return RocketmqDataSource(CaseInsensitiveDict({**PROPERTIES, **options, **prefixed}))


def commented(comment: str) -> StructType:
    return StructType(
        [StructField("value", BinaryType(), True, {"comment": comment}), StructField("tags", StringType())]
    )


def comment_of(ddl: str) -> str:
    return ddl.split("COMMENT '")[1].split("'")[0].replace("\\\\", "\\")


def test_a_table_can_be_created_though_spark_adds_its_own_properties() -> None:
    ddl = creating(namesrv="h:1", subscribe="orders", columns="value, tags").schema()
    assert ddl.startswith("`value` binary COMMENT 'rocketmq options: {") and ddl.endswith("', `tags` string")


def test_a_table_is_read_and_written_with_the_options_it_was_created_with() -> None:
    condition = {"expressionType": "SQL92", "subExpression": "region = 'EU'"}
    schema = commented(
        comment_of(creating(nameSrv="h:1", Subscribe="orders", batchRows="7", **condition).schema())
    )
    read = {
        "namesrv": "h:1",
        "subscribe": "orders",
        "expressiontype": "SQL92",
        "subexpression": "region = 'EU'",
    }
    assert source_options({}, schema) == read
    assert sink_options({}, schema, {}) == {"namesrv": "h:1", "topic": "orders", "batchrows": "7"}


def test_readers_of_a_table_need_no_options() -> None:
    schema = commented('rocketmq options: {"namesrv": "h:1", "subscribe": "orders", "topic": "elsewhere"}')
    source = RocketmqDataSource(CaseInsensitiveDict({}))
    assert isinstance(source.reader(schema), RocketmqReader)
    stream = source.streamReader(schema)
    assert isinstance(stream, RocketmqStreamReader) and stream.options.topics == ("orders",)
    assert sink_options({}, schema, {})["topic"] == "elsewhere"


def test_a_table_with_an_end_is_no_stream() -> None:
    schema = commented('rocketmq options: {"namesrv": "h:1", "subscribe": "orders", "endingtimestamp": "5"}')
    source = RocketmqDataSource(CaseInsensitiveDict({}))
    assert isinstance(source.reader(schema), RocketmqReader)
    with pytest.raises(ConfigError, match="the option endingTimestamp is for batches"):
        source.streamReader(schema).initialOffset()


def test_options_of_a_query_are_added_and_another_topic_replaces_all() -> None:
    schema = commented('rocketmq options: {"namesrv": "h:1", "subscribe": "orders"}')
    added = source_options({"startingTimestamp": "5"}, schema)
    assert added == {"namesrv": "h:1", "subscribe": "orders", "startingtimestamp": "5"}
    assert source_options({"store": "folder"}, schema) == {"store": "folder"}


def test_rows_that_were_read_from_a_table_are_not_sent_back_to_it() -> None:
    read = commented('rocketmq options: {"namesrv": "h:1", "subscribe": "orders", "batchRows": "7"}')
    elsewhere = {"namesrv": "h:2", "topic": "copies"}
    assert sink_options(elsewhere, read, {}) == elsewhere
    with_topics = StructType([*read.fields, StructField("topic", StringType())])
    assert "topic" not in sink_options({}, with_topics, {})
    with pytest.raises(ConfigError, match="a table at h:1, but NAMESRV_ADDR is h:2: set the option namesrv"):
        sink_options({}, read, {"NAMESRV_ADDR": "h:2"})
    assert sink_options({"accessKey": "a"}, read, {"NAMESRV_ADDR": "h:1"})["topic"] == "orders"


def test_a_wrong_option_of_a_table_names_the_nearest_right_one() -> None:
    with pytest.raises(
        ConfigError, match="unknown option 'startingofsets'; did you mean startingOffsets"
    ) as caught:
        creating(namesrv="h:1", subscribe="orders", startingOfsets="latest").schema()
    assert not any(name in str(caught.value) for name in PROPERTIES)
    with pytest.raises(ConfigError, match="unknown option 'path'; use"):
        creating(namesrv="h:1", subscribe="orders", path="/x").schema()


def test_credentials_are_not_kept_in_a_table() -> None:
    with pytest.raises(ConfigError, match="secretkey: credentials cannot be table options.*WITH"):
        creating(namesrv="h:1", subscribe="orders", secretKey="x").schema()


def test_a_table_whose_options_spark_lost_says_how_to_create_it() -> None:
    schema = StructType([StructField("value", StringType())])
    source = RocketmqDataSource(CaseInsensitiveDict({}))
    with pytest.raises(ConfigError, match="created with a list of columns.*columns 'value string, tags'"):
        source.reader(schema)
    with pytest.raises(ConfigError, match="created with a list of columns.*such as namesrv"):
        source.writer(schema, False)


@pytest.mark.parametrize(
    ("columns", "ddl"),
    [
        ("value string, tags", "`value` string, `tags` string"),
        (
            "property_a-b, properties map<string, string>",
            "`property_a-b` string, `properties` map<string,string>",
        ),
        ("queue_id LONG, phy_offset", "`queue_id` bigint, `phy_offset` bigint"),
    ],
)
def test_columns_by_option(columns: str, ddl: str) -> None:
    options = {"namesrv": "h:1", "subscribe": "orders", "columns": columns}
    assert RocketmqDataSource(CaseInsensitiveDict(options)).schema() == ddl


@pytest.mark.parametrize(
    ("columns", "words"),
    [("vale", "did you mean value"), ("value int", "cannot be int"), ("value string x y(", "not a column")],
)
def test_columns_by_option_that_are_none(columns: str, words: str) -> None:
    options = {"namesrv": "h:1", "subscribe": "orders", "columns": columns}
    with pytest.raises(ConfigError, match=words):
        RocketmqDataSource(CaseInsensitiveDict(options)).schema()


def test_columns_by_option_and_by_schema_exclude_each_other() -> None:
    options = {"namesrv": "h:1", "subscribe": "orders", "columns": "tags"}
    source = RocketmqDataSource(CaseInsensitiveDict(options))
    assert source.reader(StructType([StructField("tags", StringType())]))
    with pytest.raises(ConfigError, match="are mutually exclusive"):
        source.reader(StructType([StructField("key", StringType())]))
