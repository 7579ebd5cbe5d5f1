"""Settings: what clients of each language insist on in the answer."""

from __future__ import annotations

import pytest

from kourou.access.model import Action
from kourou.protocol.bodies import SubscriptionGroupConfig
from kourou.protocol.bodies.subscription import (
    ExponentialRetryPolicy,
    GroupRetryPolicy,
    GroupRetryPolicyType,
)
from kourou.protocol.codes import LanguageCode
from kourou.proxy.clients.client_settings import (
    ClientPolicy,
    GroupRules,
    read_settings,
    settings_answer,
)
from kourou.proxy.messages.statuses import StatusError
from kourou.proxy.wire.rocketmq_v2 import ClientType, Code, FilterType, Language, Settings
from tests.unit.proxy.recorded import consumer_settings, producer_settings


def answer(sent: Settings, config: SubscriptionGroupConfig | None = None) -> Settings:
    settings = read_settings(sent)
    rules = GroupRules.of("g", config) if settings.is_consumer else None
    return settings_answer(settings, rules, ClientPolicy())


def test_a_producer_gets_its_topics_back_with_a_backoff_and_limits() -> None:
    found = answer(producer_settings("T", "U"))
    assert found.WhichOneof("pub_sub") == "publishing"
    assert [topic.name for topic in found.publishing.topics] == ["T", "U"]
    assert (found.publishing.max_body_size, found.publishing.validate_message_type) == (4 << 20, True)
    backoff = found.backoff_policy
    assert (backoff.max_attempts, backoff.WhichOneof("strategy")) == (3, "exponential_backoff")
    assert backoff.exponential_backoff.initial.nanos == 10_000_000
    assert (backoff.exponential_backoff.max.seconds, backoff.exponential_backoff.multiplier) == (1, 2)
    assert found.HasField("metric") and not found.metric.on


def test_a_producer_may_have_no_topics_yet() -> None:
    assert answer(producer_settings()).publishing.max_body_size == 4 << 20


def test_a_consumer_gets_the_rules_of_its_group() -> None:
    found = answer(
        consumer_settings("T"), SubscriptionGroupConfig(consume_message_orderly=True, retry_max_times=4)
    )
    subscription = found.subscription
    assert (subscription.group.name, subscription.fifo, subscription.receive_batch_size) == ("g", True, 32)
    assert subscription.subscriptions[0].topic.name == "T"
    assert subscription.long_polling_timeout.seconds == 20
    assert found.backoff_policy.max_attempts == 5
    delays = [delay.seconds for delay in found.backoff_policy.customized_backoff.next]
    assert delays[:5] == [1, 5, 10, 30, 60] and (len(delays), delays[-1]) == (18, 7200)


def test_a_group_that_brokers_do_not_know_yet_has_their_defaults() -> None:
    assert answer(consumer_settings()).backoff_policy.max_attempts == 17


def test_a_group_with_an_exponential_policy_has_that() -> None:
    policy = GroupRetryPolicy(
        GroupRetryPolicyType.EXPONENTIAL, ExponentialRetryPolicy(initial=2_500, max=60_000, multiplier=3)
    )
    config = SubscriptionGroupConfig(group_retry_policy=policy)
    backoff = answer(consumer_settings(), config).backoff_policy.exponential_backoff
    assert (backoff.initial.seconds, backoff.initial.nanos) == (2, 500_000_000)
    assert (backoff.max.seconds, backoff.multiplier) == (60, 3)
    rules = GroupRules.of("g", config)
    assert [rules.retry_delay_ms(times) for times in (0, 1, 2, 3, 1_000)] == [
        2_500,
        7_500,
        22_500,
        60_000,
        60_000,
    ]


def test_retries_beyond_the_last_delay_keep_it() -> None:
    rules = GroupRules.of("g", None)
    assert [rules.retry_delay_ms(times) for times in (0, 17, 99)] == [1_000, 7_200_000, 7_200_000]


def test_a_backoff_that_the_client_has_sent_does_not_stay() -> None:
    sent = producer_settings("T")
    sent.backoff_policy.max_attempts = 99
    sent.backoff_policy.customized_backoff.next.add(seconds=1)
    assert answer(sent).backoff_policy.WhichOneof("strategy") == "exponential_backoff"


def test_what_the_client_says_of_itself_comes_back() -> None:
    sent = consumer_settings()
    sent.user_agent.hostname = "there"
    sent.access_point.addresses.add(host="proxy", port=8081)
    found = answer(sent)
    assert (found.user_agent, found.access_point, found.request_timeout.seconds) == (
        sent.user_agent,
        sent.access_point,
        3,
    )


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (Settings(client_type=ClientType.PRODUCER), Code.UNRECOGNIZED_CLIENT_TYPE),
        (Settings(), Code.UNRECOGNIZED_CLIENT_TYPE),
        (consumer_settings(client_type=ClientType.PRODUCER), Code.UNRECOGNIZED_CLIENT_TYPE),
        (consumer_settings(client_type=99), Code.UNRECOGNIZED_CLIENT_TYPE),
        (consumer_settings(client_type=ClientType.LITE_PUSH_CONSUMER), Code.UNSUPPORTED),
        (consumer_settings(group=""), Code.ILLEGAL_CONSUMER_GROUP),
        (consumer_settings("a b"), Code.ILLEGAL_TOPIC),
        (producer_settings("SCHEDULE_TOPIC_XXXX"), Code.ILLEGAL_TOPIC),
        (consumer_settings(filter_type=7), Code.ILLEGAL_FILTER_EXPRESSION),
        (consumer_settings(filter_type=FilterType.SQL, expression=" "), Code.ILLEGAL_FILTER_EXPRESSION),
        (consumer_settings(expression="||"), Code.ILLEGAL_FILTER_EXPRESSION),
    ],
)
def test_settings_that_no_client_can_have_are_refused(sent: Settings, code: Code) -> None:
    with pytest.raises(StatusError) as caught:
        read_settings(sent)
    assert caught.value.code == code


def test_filters_are_subscriptions_of_brokers() -> None:
    tags = read_settings(consumer_settings("T", expression="A || B")).subscriptions["T"]
    assert (tags.expression_type, tags.tags_set) == ("TAG", ["A", "B"])
    sql = read_settings(consumer_settings("T", filter_type=FilterType.SQL, expression="a > 5")).subscriptions[
        "T"
    ]
    assert (sql.expression_type, sql.sub_string) == ("SQL92", "a > 5")
    none = read_settings(consumer_settings("T", filter_type=0, expression="")).subscriptions["T"]
    assert (none.expression_type, none.sub_string) == ("TAG", "*")


def test_a_client_needs_rights_for_what_it_says() -> None:
    consumer = read_settings(consumer_settings("T")).needs.auth
    assert {(str(need.resource), *need.actions) for need in consumer} == {
        ("Group:g", Action.SUB),
        ("Topic:T", Action.SUB),
    }
    producer = read_settings(producer_settings("T")).needs.auth
    assert [(str(need.resource), *need.actions) for need in producer] == [("Topic:T", Action.PUB)]
    assert read_settings(producer_settings()).needs.auth == ()


@pytest.mark.parametrize(
    ("language", "expected"),
    [
        (Language.GOLANG, LanguageCode.GO),
        (Language.NODE_JS, LanguageCode.NODE_JS),
        (Language.KOTLIN, LanguageCode.OTHER),
        (99, LanguageCode.OTHER),
    ],
)
def test_brokers_are_told_the_language_of_a_client(language: int, expected: LanguageCode) -> None:
    sent = producer_settings("T")
    sent.user_agent.language = language
    assert read_settings(sent).language is expected
