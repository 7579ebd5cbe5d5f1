"""What subscriptions let through, and what is answered to those that are none."""

from __future__ import annotations

import pytest

from kourou.broker.filters.plugin_host import PluginFilter, PluginHost
from kourou.broker.groups import message_filter
from kourou.broker.groups.consumers import ConsumerManager
from kourou.broker.groups.message_filter import (
    MessageFilter,
    PropertyFilter,
    RetryFilter,
    check_subscription,
    subscription_filter,
)
from kourou.broker.settings import LiveConfig
from kourou.config.broker import BrokerConfig
from kourou.errors import RequestError
from kourou.protocol.bodies import SubscriptionData
from kourou.protocol.codes import ResponseCode
from kourou.protocol.tags import tags_code
from tests.unit.broker.tables_kit import consumer, make_channel

PLUGINS = PluginHost(LiveConfig(BrokerConfig(filter_plugins="json,other")), lambda: 0)


def passes(wants: PropertyFilter, properties: str) -> bool:
    raw = properties.encode()
    return wants.matches_bytes(raw, 0, len(raw))


def filter_of(
    expression: str | None, expression_type: str | None, *, property_filter: bool = True
) -> MessageFilter:
    return subscription_filter(expression, expression_type, property_filter=property_filter, plugins=PLUGINS)


def refused(expression: str | None, expression_type: str, *, property_filter: bool = True) -> RequestError:
    with pytest.raises(RequestError) as caught:
        filter_of(expression, expression_type, property_filter=property_filter)
    return caught.value


@pytest.mark.parametrize("expression_type", [None, "", "TAG"])
def test_tags_are_compared_by_code(expression_type: str | None) -> None:
    for property_filter in (True, False):
        wanted = subscription_filter(
            "a || b", expression_type, property_filter=property_filter, plugins=PLUGINS
        )
        assert wanted == (frozenset({tags_code("a"), tags_code("b")}), None)
    assert filter_of("*", expression_type) == MessageFilter(None, None)


def test_sql_is_compared_by_property() -> None:
    wanted = filter_of("a > 1", "SQL92")
    assert wanted.codes is None and wanted.wants is not None
    assert passes(wanted.wants, "a\x012\x02") and not passes(wanted.wants, "a\x011\x02")


def test_sql_that_is_none_is_refused_with_place_and_hint() -> None:
    error = refused("a > 1 ANDD b", "SQL92")
    assert error.response_code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    assert error.remark == (
        "parse the consumer's subscription failed: SQL92 expression: unexpected 'ANDD' "
        "at position 7; did you mean AND?"
    )
    assert "unexpected end at position 1; expected " in refused(None, "SQL92").remark


def test_other_types_are_refused_and_all_when_they_are_switched_off() -> None:
    assert "no filter of type 'SQL99'; use TAG, SQL92 or PLUGIN" in refused("a", "SQL99").remark
    for expression_type in ("SQL92", "SQL99"):
        error = refused("a >", expression_type, property_filter=False)
        assert error.response_code == ResponseCode.SYSTEM_ERROR
        assert error.remark == f"The broker does not support consumer to filter message by {expression_type}"


def test_installed_filters_are_named_by_a_type_of_their_own_or_in_place_of_sql() -> None:
    for expression, expression_type in (("json $.a > 1", "PLUGIN"), ("PLUGIN json $.a > 1", "SQL92")):
        for property_filter in (True, False):
            wanted = subscription_filter(
                expression, expression_type, property_filter=property_filter, plugins=PLUGINS
            )
            assert wanted == (None, PluginFilter("json", "$.a > 1"))


def test_filters_that_are_not_installed_are_refused_with_those_that_are() -> None:
    error = refused("jsno $.a > 1", "PLUGIN")
    assert error.response_code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    assert error.remark.endswith("no filter 'jsno' is installed at this broker; did you mean json?")
    assert "; there are: json" in refused("", "PLUGIN").remark


def test_a_filter_in_java_is_refused() -> None:
    with pytest.raises(RequestError, match=r"class filters are gone since RocketMQ 4.3 \(topic T\)"):
        check_subscription(
            SubscriptionData("T", "org.example.Filter", class_filter_mode=True),
            property_filter=True,
            plugins=PLUGINS,
        )


async def test_messages_consumed_again_are_filtered_by_their_own_topic() -> None:
    consumers = ConsumerManager(lambda: 0, lambda group, members: None)
    data = consumer("CG", T="a = 'x'", TAGGED="a = 'x'")
    data.subscription_data_set[0].expression_type = "SQL92"
    consumers.register(make_channel("c1", 1), data)
    wanted = RetryFilter(consumers, "CG")
    assert passes(wanted, "RETRY_TOPIC\x01T\x02a\x01x\x02")
    assert not passes(wanted, "RETRY_TOPIC\x01T\x02a\x01y\x02")
    assert passes(wanted, "RETRY_TOPIC\x01TAGGED\x02a\x01y\x02"), "tags have been compared before"
    assert passes(wanted, "RETRY_TOPIC\x01OTHER\x02")
    assert passes(wanted, "a\x01y\x02")


def test_a_tag_expression_has_a_bound_and_few_long_ones_are_kept() -> None:
    """One of 2 MB once stopped everybody for seconds, and 4,096 of them were kept."""
    longest = "a" * message_filter.MAX_EXPRESSION_CHARS
    assert filter_of(longest, "TAG").codes == frozenset({tags_code(longest)})
    error = refused(longest + "a", "TAG")
    assert error.response_code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    assert "has 16385 characters; write 16384 at most" in error.remark
    short_before = message_filter._short_tag_codes.cache_info().currsize
    for number in range(100):
        filter_of(f"{number} || " + "b" * 300, "TAG")
    assert message_filter._short_tag_codes.cache_info().currsize == short_before
    assert message_filter._long_tag_codes.cache_info().currsize <= 32
