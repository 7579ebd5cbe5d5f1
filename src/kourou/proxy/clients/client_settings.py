"""Settings of a client: what it sends when it opens a Telemetry stream, and what the proxy answers.

The answer is what the client sent, with the values filled in that the server decides. Clients insist on most
of them: a producer does not start without an exponential backoff, a push consumer without any, and with
max_body_size 0 Java and Go refuse every send. In order or not is a property of the group.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from kourou.access.model import Needs
from kourou.access.needs import NOTHING, belong, consume, joined, publish
from kourou.client.core.subscription import ExpressionType, subscription_data
from kourou.errors import ProtocolError
from kourou.protocol.bodies import SubscriptionData, SubscriptionGroupConfig
from kourou.protocol.bodies.subscription import (
    DEFAULT_RETRY_DELAYS_MS,
    CustomizedRetryPolicy,
    ExponentialRetryPolicy,
    GroupRetryPolicyType,
)
from kourou.protocol.codes import LanguageCode
from kourou.proxy.messages.names import group_name, topic_name
from kourou.proxy.messages.statuses import StatusError
from kourou.proxy.messages.times import duration_ms, duration_of_ms
from kourou.proxy.wire.rocketmq_v2 import (
    ClientType,
    Code,
    CustomizedBackoff,
    ExponentialBackoff,
    FilterExpression,
    FilterType,
    Language,
    RetryPolicy,
    Settings,
)

_PRODUCERS: Final = frozenset({ClientType.CLIENT_TYPE_UNSPECIFIED, ClientType.PRODUCER})
_CONSUMERS: Final = frozenset(
    {
        ClientType.CLIENT_TYPE_UNSPECIFIED,
        ClientType.PUSH_CONSUMER,
        ClientType.SIMPLE_CONSUMER,
        ClientType.PULL_CONSUMER,
    }
)
_LITE_CONSUMERS: Final = frozenset({ClientType.LITE_PUSH_CONSUMER, ClientType.LITE_SIMPLE_CONSUMER})
_EXPRESSION_TYPES: Final[dict[int, ExpressionType]] = {
    FilterType.FILTER_TYPE_UNSPECIFIED: "TAG",
    FilterType.TAG: "TAG",
    FilterType.SQL: "SQL92",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientPolicy:
    """What the proxy decides for its clients; defaults and names are those of Apache's `rmq-proxy.json`."""

    producer_max_attempts: int = 3
    """grpcClientProducerMaxAttempts"""
    producer_backoff_initial_ms: int = 10
    """grpcClientProducerBackoffInitialMillis"""
    producer_backoff_max_ms: int = 1_000
    """grpcClientProducerBackoffMaxMillis"""
    producer_backoff_multiplier: int = 2
    """grpcClientProducerBackoffMultiplier"""
    max_body_bytes: int = 4 * 1024 * 1024
    """maxMessageSize"""
    validates_message_type: bool = True
    """enableTopicMessageTypeCheck"""
    receive_batch_size: int = 32
    """grpcClientConsumerLongPollingBatchSize"""
    min_polling_ms: int = 5_000
    """grpcClientConsumerMinLongPollingTimeoutMillis"""
    max_polling_ms: int = 20_000
    """grpcClientConsumerMaxLongPollingTimeoutMillis"""


_LANGUAGES: Final[dict[int, LanguageCode]] = {
    Language.JAVA: LanguageCode.JAVA,
    Language.CPP: LanguageCode.CPP,
    Language.DOT_NET: LanguageCode.DOTNET,
    Language.GOLANG: LanguageCode.GO,
    Language.RUST: LanguageCode.RUST,
    Language.PYTHON: LanguageCode.PYTHON,
    Language.PHP: LanguageCode.PHP,
    Language.NODE_JS: LanguageCode.NODE_JS,
    Language.RUBY: LanguageCode.RUBY,
}
"""Others are OTHER to brokers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """What a client has sent."""

    sent: Settings
    client_type: int
    topics: tuple[str, ...] = ()
    """What a producer sends to."""
    group: str = ""
    """Of a consumer; empty: it is a producer."""
    subscriptions: Mapping[str, SubscriptionData]
    """Of a consumer, by topic."""
    request_timeout_ms: int

    @property
    def is_consumer(self) -> bool:
        """Whether the client consumes."""
        return bool(self.group)

    @property
    def language(self) -> LanguageCode:
        """What the client is written in."""
        return _LANGUAGES.get(self.sent.user_agent.language, LanguageCode.OTHER)

    @property
    def needs(self) -> Needs:
        """The rights that the client must have."""
        if not self.group:
            return joined(map(publish, self.topics)) if self.topics else NOTHING
        return joined((belong(self.group), *(consume(topic, self.group) for topic in self.subscriptions)))


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRules:
    """What brokers have stored of a consumer group, as far as its clients have to know."""

    group: str
    is_fifo: bool
    max_attempts: int
    """Deliveries of a message before it goes to the dead letters."""
    retry_policy: CustomizedRetryPolicy | ExponentialRetryPolicy

    @classmethod
    def of(cls, group: str, config: SubscriptionGroupConfig | None) -> GroupRules:
        """The rules of a group; None: brokers do not know it yet, and will create it with their defaults."""
        config = config or SubscriptionGroupConfig()
        policy = config.group_retry_policy
        if policy.type is GroupRetryPolicyType.EXPONENTIAL:
            chosen: CustomizedRetryPolicy | ExponentialRetryPolicy = (
                policy.exponential_retry_policy or ExponentialRetryPolicy()
            )
        else:
            chosen = policy.customized_retry_policy or CustomizedRetryPolicy()
        return cls(
            group=group,
            is_fifo=config.consume_message_orderly,
            max_attempts=config.retry_max_times + 1,
            retry_policy=chosen,
        )

    def retry_delay_ms(self, reconsume_times: int) -> int:
        """How long a message waits that was delivered `reconsume_times` times before."""
        policy = self.retry_policy
        if isinstance(policy, ExponentialRetryPolicy):
            # Beyond this exponent every policy is at its end.
            factor = max(policy.multiplier, 1) ** min(max(reconsume_times, 0), 32)
            return int(min(policy.max, policy.initial * factor))
        delays = policy.next or list(DEFAULT_RETRY_DELAYS_MS)
        return delays[min(max(reconsume_times, 0), len(delays) - 1)]


def read_settings(sent: Settings) -> ClientSettings:
    """The settings of a client. StatusError: a client cannot have these."""
    kind, client_type = sent.WhichOneof("pub_sub"), sent.client_type
    if client_type in _LITE_CONSUMERS:
        raise StatusError(Code.UNSUPPORTED, "lite topics are not supported; use a push or simple consumer")
    request_timeout_ms = duration_ms(sent.request_timeout)
    if kind == "publishing" and client_type in _PRODUCERS:
        topics = tuple(dict.fromkeys(topic_name(topic) for topic in sent.publishing.topics))
        return ClientSettings(
            sent=sent,
            client_type=client_type,
            topics=topics,
            subscriptions={},
            request_timeout_ms=request_timeout_ms,
        )
    if kind == "subscription" and client_type in _CONSUMERS:
        entries = sent.subscription.subscriptions
        return ClientSettings(
            sent=sent,
            client_type=client_type,
            group=group_name(sent.subscription.group),
            subscriptions={
                (topic := topic_name(entry.topic)): subscription_of(topic, entry.expression)
                for entry in entries
            },
            request_timeout_ms=request_timeout_ms,
        )
    raise StatusError(
        Code.UNRECOGNIZED_CLIENT_TYPE,
        f"the settings have client_type {client_type} and {kind or 'neither publishing nor subscription'}; "
        "a producer has publishing, a consumer has subscription",
    )


def subscription_of(topic: str, expression: FilterExpression) -> SubscriptionData:
    """A subscription as brokers know it. StatusError: it selects nothing, or is of an unknown type."""
    kind = _EXPRESSION_TYPES.get(expression.type)
    if kind is None:
        raise StatusError(
            Code.ILLEGAL_FILTER_EXPRESSION, f"filter type {expression.type} is none; use TAG or SQL"
        )
    try:
        return subscription_data(topic, expression.expression, kind)
    except (ValueError, ProtocolError) as error:
        raise StatusError(Code.ILLEGAL_FILTER_EXPRESSION, str(error)) from error


def settings_answer(settings: ClientSettings, rules: GroupRules | None, policy: ClientPolicy) -> Settings:
    """What a client gets for its settings; consumers have the rules of their group."""
    answer = Settings()
    answer.CopyFrom(settings.sent)
    answer.metric.on = False
    answer.backoff_policy.Clear()
    if rules is None:
        publishing = answer.publishing
        publishing.max_body_size = policy.max_body_bytes
        publishing.validate_message_type = policy.validates_message_type
        answer.backoff_policy.CopyFrom(
            RetryPolicy(
                max_attempts=policy.producer_max_attempts,
                exponential_backoff=_exponential(
                    policy.producer_backoff_initial_ms,
                    policy.producer_backoff_max_ms,
                    policy.producer_backoff_multiplier,
                ),
            )
        )
        return answer
    subscription = answer.subscription
    subscription.fifo = rules.is_fifo
    subscription.receive_batch_size = policy.receive_batch_size
    subscription.long_polling_timeout.CopyFrom(duration_of_ms(policy.max_polling_ms))
    answer.backoff_policy.CopyFrom(_backoff(rules))
    return answer


def _backoff(rules: GroupRules) -> RetryPolicy:
    policy = rules.retry_policy
    if isinstance(policy, ExponentialRetryPolicy):
        backoff = _exponential(policy.initial, policy.max, policy.multiplier)
        return RetryPolicy(max_attempts=rules.max_attempts, exponential_backoff=backoff)
    delays: Iterable[int] = policy.next or DEFAULT_RETRY_DELAYS_MS
    return RetryPolicy(
        max_attempts=rules.max_attempts,
        customized_backoff=CustomizedBackoff(next=map(duration_of_ms, delays)),
    )


def _exponential(initial_ms: int, max_ms: int, multiplier: float) -> ExponentialBackoff:
    return ExponentialBackoff(
        initial=duration_of_ms(initial_ms), max=duration_of_ms(max_ms), multiplier=multiplier
    )
