"""PullTargets: what a group may pull of a topic, and which messages of it; decided once, then remembered.

A consumer asks the same a thousand times a second. What was decided holds as long as all that it was decided
by is the very same: the ruling of the admission gate, the configurations of groups and topic, none of which
is ever changed in place, and the subscription of the consumer, from the request or from the heartbeats of its
group. These are the guards of a target, which the compiled kernel checks too: it asks here again as soon as
one of them does not hold. The rest is decided each time: filters by property, long lists of tags, members
whose subscription differs from that of their group.
Not here: what rejects a pull (admission.py), how a filter is made (message_filter.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

from kourou.broker.admission import ForbiddenType, PullForbiddenError, Ruling
from kourou.broker.connection_state import ConnectionState
from kourou.broker.groups.message_filter import (
    MessageFilter,
    PropertyFilter,
    RetryFilter,
    TagCodes,
    class_filter_refused,
    is_tag_type,
    subscription_filter,
)
from kourou.errors import RequestError
from kourou.protocol.bodies.heartbeat import MessageModel, SubscriptionData
from kourou.protocol.bodies.subscription import SubscriptionGroupConfig
from kourou.protocol.bodies.topics import TopicConfig
from kourou.protocol.codes import PullSysFlag, ResponseCode
from kourou.protocol.headers.pull import PullMessageRequestHeader
from kourou.protocol.names import RETRY_GROUP_TOPIC_PREFIX
from kourou.transport.connection import Connection
from kourou.transport.request import Request

if TYPE_CHECKING:
    from kourou.broker.admission import Admission
    from kourou.broker.filters.plugin_host import PluginFilter, PluginHost
    from kourou.broker.groups.consumers import ConsumerManager
    from kourou.broker.settings import LiveConfig
    from kourou.broker.tables.subscription_groups import SubscriptionGroupManager
    from kourou.broker.tables.topics import TopicConfigManager
    from kourou.store.kernel import PullTargetFields

MAX_KNOWN: Final = 10_000
"""Groups and topics of that many are remembered, at most 10 MB; then all are decided anew."""
_MAX_CODES: Final = 8
_MAX_EXPRESSION_CHARS: Final = 256

_SUBSCRIPTION: Final = PullSysFlag.SUBSCRIPTION.value
_CLASS_FILTER: Final = PullSysFlag.CLASS_FILTER.value
_FILTER_BITS: Final = _SUBSCRIPTION | _CLASS_FILTER
_PARSE_FAILED: Final = ResponseCode.SUBSCRIPTION_PARSE_FAILED


Guards: TypeAlias = tuple[tuple[Any, str, object], ...]
"""Of each object that something was decided by: a dict, or an object that has it, the key or the name of the
attribute, and the object itself; None: the dict had nothing there."""


def holds(guards: Guards) -> bool:
    """Whether each of them has the very same object still."""
    for owner, name, found in guards:
        now = owner.get(name) if isinstance(owner, dict) else getattr(owner, name)
        if now is not found:
            return False
    return True


class PullTarget:
    """A topic that a group may pull from; `codes` and `wants` are the filter."""

    __slots__ = (
        "_expression",
        "_expression_type",
        "_filter_bits",
        "_permissions",
        "_subscribed",
        "_subscription",
        "codes",
        "group_config",
        "kernel_fields",
        "ruling",
        "topic_config",
        "wants",
    )

    def __init__(
        self,
        topic_config: TopicConfig,
        group_config: SubscriptionGroupConfig,
        codes: TagCodes,
        wants: PropertyFilter | PluginFilter | None = None,
    ) -> None:
        self.topic_config = topic_config
        self.group_config = group_config
        self.codes = codes
        self.wants = wants
        self.ruling: Ruling | None = None
        # Made when the compiled kernel first asks (fast_pull_path.py).
        self.kernel_fields: PullTargetFields | None = None
        # By what the group may pull, and by what it has subscribed, where heartbeats say that.
        self._permissions: Guards = ()
        self._subscribed: Guards = ()
        self._filter_bits = 0
        self._expression: str | None = None
        self._expression_type: str | None = None
        self._subscription: SubscriptionData | None = None

    def record_permissions(self, rules: PullTargets, topic: str) -> None:
        """It was found now that the group may pull from the topic."""
        self.ruling = rules.admission.ruling
        self._permissions = (
            (rules.admission, "ruling", self.ruling),
            # Another one with every change of any group, and of what a group is forbidden.
            (rules.groups, "data_version", rules.groups.data_version),
            (rules.topics.table, topic, self.topic_config),
        )

    def record_subscription(
        self,
        rules: PullTargets,
        header: PullMessageRequestHeader,
        subscription: SubscriptionData | None,
    ) -> None:
        """The filter is that of `header`, or of the group's heartbeats, which said `subscription`."""
        self._filter_bits = header.sys_flag & _FILTER_BITS
        self._expression = header.subscription
        self._expression_type = header.expression_type
        self._subscription = subscription
        groups = rules.consumers.groups
        group = groups.get(header.consumer_group)
        if group is not None:
            self._subscribed = (
                (groups, header.consumer_group, group),
                (group, "message_model", group.message_model),
                (group.subscriptions, header.topic, subscription),
            )

    def allows(self, queue_id: int) -> bool:
        """Whether nothing has changed by which the group may pull; the queue is looked at too."""
        return holds(self._permissions) and 0 <= queue_id < self.topic_config.read_queue_nums

    def is_wanted(self, connection: Connection, header: PullMessageRequestHeader) -> bool:
        """Whether the filter is still that of the consumer."""
        if header.sys_flag & _FILTER_BITS != self._filter_bits:
            return False
        if self._filter_bits:
            return header.subscription == self._expression and header.expression_type == self._expression_type
        subscription = self._subscription
        if (
            subscription is None
            or not holds(self._subscribed)
            or subscription.sub_version < header.sub_version
        ):
            return False
        state: ConnectionState = connection.state
        own = state.subscription(header.consumer_group, header.topic)
        return own is None or own is subscription or _says_the_same(own, subscription)

    def guards(self, connection: Connection, header: PullMessageRequestHeader) -> Guards:
        """As long as these hold, the same request of the same connection has this target, which it has
        now."""
        if self._filter_bits:
            return self._permissions
        state: ConnectionState = connection.state
        group = header.consumer_group
        own = (state.subscriptions, group, state.subscriptions.get(group))
        return (*self._permissions, *self._subscribed, own)


class PullTargets:
    """The targets of one broker."""

    def __init__(
        self,
        *,
        config: LiveConfig,
        admission: Admission,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        consumers: ConsumerManager,
        plugins: PluginHost,
    ) -> None:
        self._config = config
        self._plugins = plugins
        self.admission = admission
        self.topics = topics
        self.groups = groups
        self.consumers = consumers
        self._known: dict[tuple[str, str], PullTarget] = {}

    def __len__(self) -> int:
        return len(self._known)

    def find(self, request: Request, header: PullMessageRequestHeader) -> PullTarget:
        """What the pull is to get; PullForbiddenError or RequestError when it may not be."""
        return self.known(request.connection, header) or self._decide(request, header)

    def known(self, connection: Connection, header: PullMessageRequestHeader) -> PullTarget | None:
        """The same where it was decided before, and nothing has changed since; None: it is to be decided."""
        target = self._known.get((header.topic, header.consumer_group))
        if target is not None and target.allows(header.queue_id) and target.is_wanted(connection, header):
            return target
        return None

    def still_holds(self, fields: PullTargetFields, queue_id: int) -> bool:
        """Whether the kernel would answer a pull from this queue under the decision that it was given."""
        group, topic, *_ = fields
        target = self._known.get((topic, group))
        return target is not None and target.kernel_fields is fields and target.allows(queue_id)

    def renew(self, request: Request, header: PullMessageRequestHeader, target: PullTarget) -> PullTarget:
        """The target of a pull that has waited: its permissions are checked again, its filter stays."""
        if target.allows(header.queue_id):
            return target
        admission = self.admission
        admission.check_parked(request, target.ruling)
        topic_config, group_config = admission.check_pull(header, request.connection.remote_address)
        renewed = PullTarget(topic_config, group_config, target.codes, target.wants)
        renewed.record_permissions(self, header.topic)
        return renewed

    def _decide(self, request: Request, header: PullMessageRequestHeader) -> PullTarget:
        topic_config, group_config = self.admission.check_pull(header, request.connection.remote_address)
        if header.sys_flag & _CLASS_FILTER:
            raise class_filter_refused(header.topic)
        subscription = None
        if header.sys_flag & _SUBSCRIPTION:
            wanted = subscription_filter(
                header.subscription,
                header.expression_type,
                property_filter=self._config.current.enable_property_filter,
                plugins=self._plugins,
            )
        else:
            subscription = self._subscription(request, header, group_config)
            wanted = self._heartbeat_filter(subscription)
        if self._config.current.filter_support_retry and header.topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
            group = header.topic.removeprefix(RETRY_GROUP_TOPIC_PREFIX)
            wanted = MessageFilter(None, RetryFilter(self.consumers, group))
        target = PullTarget(topic_config, group_config, *wanted)
        target.record_permissions(self, header.topic)
        if _is_ordinary(header, wanted) and (
            subscription is None
            or (
                subscription is self.consumers.find_subscription(header.consumer_group, header.topic)
                and _is_small(subscription)
            )
        ):
            target.record_subscription(self, header, subscription)
            self._remember((header.topic, header.consumer_group), target)
        return target

    def _remember(self, key: tuple[str, str], target: PullTarget) -> None:
        if len(self._known) >= MAX_KNOWN:
            self._known.clear()
        self._known[key] = target

    def _heartbeat_filter(self, subscription: SubscriptionData) -> MessageFilter:
        try:
            return subscription_filter(
                subscription.sub_string,
                subscription.expression_type,
                property_filter=self._config.current.enable_property_filter,
                plugins=self._plugins,
            )
        except RequestError as error:
            if is_tag_type(subscription.expression_type) or error.response_code != _PARSE_FAILED:
                raise
            # The heartbeat was refused for it, with the same words.
            raise RequestError(
                ResponseCode.FILTER_DATA_NOT_EXIST,
                f"The broker's consumer filter data is not exist!Your expression may be wrong! {error}",
            ) from error

    def _subscription(
        self, request: Request, header: PullMessageRequestHeader, group_config: SubscriptionGroupConfig
    ) -> SubscriptionData:
        """What heartbeats said of the topic: that of the client itself, else that of its group."""
        group = self.consumers.get(header.consumer_group)
        if group is None:
            raise RequestError(ResponseCode.SUBSCRIPTION_NOT_EXIST, "the consumer's group info not exist")
        if not group_config.consume_broadcast_enable and group.message_model == MessageModel.BROADCASTING:
            raise PullForbiddenError(
                ForbiddenType.BROADCASTING_DISABLE_FORBIDDEN,
                f"the consumer group[{header.consumer_group}] can not consume by broadcast way",
            )
        subscription = group.subscriptions.get(header.topic)
        if subscription is None:
            raise RequestError(ResponseCode.SUBSCRIPTION_NOT_EXIST, "the consumer's subscription not exist")
        if subscription.sub_version < header.sub_version:
            raise RequestError(ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest")
        state: ConnectionState = request.connection.state
        own = state.subscription(header.consumer_group, header.topic)
        if own is None or _says_the_same(own, subscription):
            return subscription
        if own.sub_version >= header.sub_version:
            return own
        if not is_tag_type(own.expression_type):
            raise RequestError(
                ResponseCode.FILTER_DATA_NOT_LATEST, "the consumer's consumer filter data not latest"
            )
        return subscription


def _is_ordinary(header: PullMessageRequestHeader, wanted: MessageFilter) -> bool:
    """Whether it takes little room to remember."""
    return (
        wanted.wants is None
        and (wanted.codes is None or len(wanted.codes) <= _MAX_CODES)
        and len(header.subscription or "") <= _MAX_EXPRESSION_CHARS
        and len(header.expression_type or "") <= _MAX_EXPRESSION_CHARS
    )


def _is_small(subscription: SubscriptionData) -> bool:
    """The same of what a heartbeat said: it may be all that is left of a client."""
    return (
        len(subscription.sub_string) <= _MAX_EXPRESSION_CHARS
        and len(subscription.tags_set) <= _MAX_CODES
        and len(subscription.code_set) <= _MAX_CODES
        and sum(map(len, subscription.tags_set)) <= _MAX_EXPRESSION_CHARS
    )


def _says_the_same(one: SubscriptionData, other: SubscriptionData) -> bool:
    return one.sub_string == other.sub_string and one.expression_type == other.expression_type
