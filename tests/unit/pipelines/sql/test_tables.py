"""A topic is a table: names, columns that a query needs, what bodies are. Without Spark."""

from __future__ import annotations

import pytest

from tests.needed import need_module

need_module("pyspark")

from kourou.errors import ConfigError  # noqa: E402
from kourou.protocol.bodies import MessageQueue  # noqa: E402
from kourou.spark.pipelines.sql.row_texts import unique_names  # noqa: E402
from kourou.spark.pipelines.sql.sql import check_statement  # noqa: E402
from kourou.spark.pipelines.sql.tables import (  # noqa: E402  # noqa: E402
    MESSAGE_TYPES,
    TableNames,
    check_names,
    named_columns,
    named_properties,
    reads_one_table_once,
)
from kourou.spark.pipelines.sql.union_source import live_begins  # noqa: E402
from kourou.spark.pipelines.sql.value_forms import ValueForm, form_of, parse_value_forms  # noqa: E402
from kourou.spark.source.columns import default_schema  # noqa: E402

NAMES = TableNames(
    frozenset({"orders", "orders-eu", "Payments", "TBW102", "%RETRY%billing"}), frozenset({"orders", "old"})
)


# -- names -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "topic"),
    [
        ("orders", "orders"),
        ("orders__live", "orders"),
        ("orders__archive", "orders"),
        ("old__archive", "old"),
        ("ORDERS", "orders"),
        ("payments", "Payments"),
        ("%RETRY%billing", "%RETRY%billing"),
    ],
)
def test_the_topic_of_a_table(name: str, topic: str) -> None:
    assert NAMES.topic_of(name) == topic


def test_a_topic_may_have_a_name_that_looks_like_a_side() -> None:
    names = TableNames(frozenset({"a__live"}))
    assert names.topic_of("a__live") == "a__live"
    assert names.topic_of("a__live__live") == "a__live"


def test_topics_that_differ_in_case_only_are_distinct() -> None:
    names = TableNames(frozenset({"orders", "Orders"}))
    assert names.topic_of("Orders") == "Orders"
    with pytest.raises(ConfigError, match="there is no topic 'ORDERS'"):
        names.topic_of("ORDERS")


def test_a_misspelt_topic_has_its_nearest_and_all_are_reported_together() -> None:
    with pytest.raises(ConfigError) as caught:
        check_names("SELECT * FROM ordres o JOIN payment p ON o.key = p.key JOIN orders x ON 1 = 1", NAMES)
    assert caught.value.problems == (
        "there is no topic 'ordres'; did you mean `orders`?",
        "there is no topic 'payment'; did you mean `Payments`?",
    )


def test_where_nothing_is_near_topics_are_listed_without_those_of_rocketmq() -> None:
    with pytest.raises(
        ConfigError, match="^there is no topic 'zzz'; there are Payments, old, orders, orders-eu$"
    ):
        NAMES.topic_of("zzz")
    with pytest.raises(ConfigError, match="there are none"):
        TableNames().topic_of("zzz")


def test_a_name_that_needs_backquotes_is_reported() -> None:
    names = TableNames(frozenset({"pay-eu"}))
    with pytest.raises(
        ConfigError, match="^there is no topic 'pay'; did you mean `pay-eu`[?] Quote such names in"
    ):
        check_names("SELECT * FROM pay-eu", names)


def test_names_of_with_are_no_topics() -> None:
    check_names("WITH big AS (SELECT * FROM orders) SELECT * FROM big JOIN `orders-eu` e ON 1 = 1", NAMES)


# -- columns ---------------------------------------------------------------------------------------


def test_columns_are_those_of_the_source() -> None:
    assert ", ".join(f"{name} {kind}" for name, kind in MESSAGE_TYPES.items()) == default_schema("rocketmq")


@pytest.mark.parametrize(
    ("sql", "columns"),
    [
        ("SELECT tags, count(*) FROM orders GROUP BY tags", {"tags"}),
        ("select Queue_ID * 2 from orders where value like 'a * b'", {"queue_id", "value"}),
        ("SELECT count( * ) FROM orders", set()),
        ("SELECT o.tags FROM orders o -- and properties\n", {"tags"}),
        ("SELECT `key`, properties['a'] FROM orders /* value */", {"key", "properties"}),
        ("WITH o AS (SELECT tags FROM orders) SELECT o.tags FROM o", {"tags"}),
        ("SELECT * FROM orders", None),
        ("SELECT o.* FROM orders o", None),
        ("SELECT tags, * FROM orders", None),
        ("SELECT DISTINCT * FROM orders", None),
        ("SELECT struct(*) FROM orders", None),
        ("SELECT count(DISTINCT *) FROM orders", None),
        ("FROM orders", None),
        ("TABLE orders", None),
        ("DESCRIBE orders", None),
        ("SELECT tags FROM (FROM orders)", None),
        ("SELECT tags FROM orders a NATURAL JOIN orders b", None),
        ("FROM orders |> WHERE tags = 'a'", None),
        ("SELECT tags FROM orders PIVOT (count(key) FOR tags IN ('a'))", None),
        ("SELECT IDENTIFIER('va' || 'lue') FROM orders", None),
    ],
)
def test_columns_that_a_query_may_use(sql: str, columns: set[str] | None) -> None:
    assert named_columns(sql, MESSAGE_TYPES) == columns


def test_single_properties_are_found_by_their_names() -> None:
    sql = "SELECT property_region, sum(o.property_Amount) FROM orders o WHERE x = 'property_not'"
    assert named_properties(sql) == ["property_Amount", "property_region"]


@pytest.mark.parametrize(
    ("sql", "is_one"),
    [
        ("SELECT * FROM orders WHERE queue_id = 0", True),
        ("SELECT tags, count(*) FROM `orders-eu` AS o WHERE tags = 'join' GROUP BY tags ORDER BY 2;", True),
        ("SELECT * FROM orders", True),
        ("SELECT * FROM orders a, orders b WHERE a.queue_id = 0 AND b.queue_id = 1", False),
        ("SELECT * FROM orders a JOIN orders b ON a.key = b.key WHERE a.queue_id = 0", False),
        ("WITH o AS (SELECT * FROM orders) SELECT * FROM o a JOIN o b ON true", False),
        ("SELECT * FROM orders WHERE queue_id = (SELECT max(queue_id) FROM orders)", False),
        ("SELECT * FROM orders WHERE queue_id = 0 UNION ALL SELECT * FROM orders", False),
        ("SELECT * FROM (SELECT * FROM orders) a", False),
        ("SELECT * FROM orders WHERE queue_id = 0 EXCEPT TABLE orders", False),
        ("SELECT * FROM orders WHERE queue_id = 0 INTERSECT FROM orders", False),
        ("SELECT * FROM orders WHERE queue_id IN (TABLE ids)", False),
        ("SELECT (TABLE ids) FROM orders WHERE queue_id = 0", False),
        ("SELECT * FROM orders WHERE queue_id = 0 |> UNION ALL TABLE orders", False),
        ("SELECT * FROM orders WHERE queue_id = 0 |> AS x", False),
    ],
)
def test_filters_are_pushed_only_where_a_table_is_read_once(sql: str, is_one: bool) -> None:
    assert reads_one_table_once(sql) is is_one


def test_columns_with_the_same_name_get_numbers() -> None:
    assert unique_names(["id", "ID", "x", "id", "id_2"]) == ["id", "ID_2", "x", "id_3", "id_2_2"]


# -- bodies ----------------------------------------------------------------------------------------


def test_forms_of_values() -> None:
    forms = parse_value_forms(["json", "orders-eu=json:id string, tags array<string>", "raw=binary"])
    assert form_of("orders", forms) == ValueForm("json")
    assert form_of("orders-eu", forms) == ValueForm("json", "id string, tags array<string>")
    assert form_of("raw", forms) == ValueForm("binary")
    assert form_of("orders", {}) == ValueForm("string")


def test_all_mistakes_of_forms_are_reported_together() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_value_forms(["jsno", "json:id strin", "string:id string", "orders=avro"])
    first, second, third, fourth = caught.value.problems
    assert first.startswith("--value 'jsno': must be json, json:SCHEMA")
    assert "did you mean string?" in second
    assert third.startswith("--value 'string:id string': must be")
    assert fourth.startswith("--value 'orders=avro': must be")


# -- statements ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sql", ["SELECT 1", "-- words\n with a as (select 1) from a", "(SELECT 1)", "explain select 1"]
)
def test_questions_are_asked(sql: str) -> None:
    check_statement(sql)


@pytest.mark.parametrize(
    ("sql", "problem"),
    [
        ("DROP TABLE orders", "DROP is not supported"),
        ("  ", "empty"),
        ("insert into x select 1", "INSERT"),
    ],
)
def test_what_is_no_question_is_refused(sql: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        check_statement(sql)


# -- archived and live -----------------------------------------------------------------------------

Q0, Q1, Q2 = (MessageQueue("orders", "broker-a", number) for number in range(3))


def test_a_queue_is_read_behind_what_is_archived() -> None:
    spans = {Q0: (0, 9, 10), Q1: (5, 6, 2)}
    assert live_begins(spans, {Q0: 3, Q1: 8, Q2: 0}, {Q0: 20, Q1: 9, Q2: 4}) == {Q0: 10, Q1: 8, Q2: 0}


@pytest.mark.parametrize("span", [(4, 9, 6), (0, 9, 7)], ids=["begins late", "has gaps"])
def test_where_offsets_do_not_decide_messages_are_compared(span: tuple[int, int, int]) -> None:
    assert live_begins({Q0: span}, {Q0: 0}, {Q0: 20}) is None


def test_a_topic_that_was_created_again_is_reported() -> None:
    with pytest.raises(
        ConfigError, match=r"ends at offset 5, but offset 9 of it is archived.*`orders__live`"
    ):
        live_begins({Q0: (0, 9, 10)}, {Q0: 0}, {Q0: 5})


def test_a_queue_that_is_archived_only_is_no_matter() -> None:
    assert live_begins({Q1: (0, 9, 10)}, {Q0: 0}, {Q0: 5}) == {Q0: 0}
