"""ConsumerManager: the connected members of consumer groups, by their heartbeats.

`on_change` is called for a group whose members or topics changed, with the members to notify; broadcasting
groups and groups without notifications are left out.
Not here: heartbeats (client_manage_processor.py), groups that exist without members (subscription_groups.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from kourou.broker.groups.consumer_group import ConsumerGroupInfo, SubscriptionKey, find_problems
from kourou.broker.groups.producers import CHANNEL_EXPIRED_MS, ClientChannel
from kourou.errors import RemotingError
from kourou.protocol.bodies import ConsumerData, SubscriptionData
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import RemotingCommand
from kourou.protocol.headers import NotifyConsumerIdsChangedRequestHeader
from kourou.transport.connection import Connection

if TYPE_CHECKING:
    from kourou.config.broker import BrokerConfig

_log = logging.getLogger(__name__)

MAX_POPPED: Final = 10_000
"""What pops of so many groups and topics select is remembered; then the oldest is forgotten."""


class ConsumerIdsNotifier:
    """The `on_change` of a ConsumerManager. A member that misses one rebalances 20 s later by itself.

    Changes of one loop iteration cause one notification, even if a thousand members disconnect together.
    With `realTimeNotifyConsumerChange` off they wait for `send_held`.
    """

    def __init__(self, config: Callable[[], BrokerConfig]) -> None:
        self._config = config
        self._held: dict[str, list[ClientChannel]] = {}

    def __call__(self, group: str, channels: list[ClientChannel]) -> None:
        """Have each of `channels` sent one NOTIFY_CONSUMER_IDS_CHANGED."""
        config = self._config()
        if not config.notify_consumer_ids_changed_enable:
            return
        if config.real_time_notify_consumer_change and not self._held:
            asyncio.get_running_loop().call_soon(self.send_held)
        self._held[group] = channels

    def send_held(self) -> None:
        """Send what was held back, for each group the last change only."""
        held, self._held = self._held, {}
        for group, channels in held.items():
            _send(group, channels)


def _send(group: str, channels: Iterable[ClientChannel]) -> None:
    header = NotifyConsumerIdsChangedRequestHeader(consumer_group=group)
    for channel in channels:
        if channel.connection.closed:
            continue
        command = RemotingCommand.request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, header)
        try:
            channel.connection.send_oneway(command)
        except RemotingError as error:
            _log.info("group %s: cannot notify %s of a change: %s", group, channel, error)


class ConsumerManager:
    """The consumer groups with connected members."""

    def __init__(
        self, now_ms: Callable[[], int], on_change: Callable[[str, list[ClientChannel]], None]
    ) -> None:
        self._now_ms = now_ms
        self._on_change = on_change
        self._groups_of: dict[Connection, set[str]] = {}
        self._popped: dict[tuple[str, str], SubscriptionData] = {}
        self.groups: dict[str, ConsumerGroupInfo] = {}

    # -- asking ----------------------------------------------------------------------------------

    def get(self, group: str) -> ConsumerGroupInfo | None:
        """The group, None when it has no member."""
        return self.groups.get(group)

    def find_subscription(self, group: str, topic: str) -> SubscriptionData | None:
        """What the group wants of a topic, by its heartbeats or else its last pop; None for nothing."""
        info = self.groups.get(group)
        wanted = None if info is None else info.subscriptions.get(topic)
        return self._popped.get((group, topic)) if wanted is None else wanted

    def find_channel(self, group: str, client_id: str) -> ClientChannel | None:
        """A member of a group by its id."""
        info = self.groups.get(group)
        return None if info is None else info.find_channel(client_id)

    def topics_of(self, group: str) -> set[str]:
        """The topics that a group subscribes to now."""
        info = self.groups.get(group)
        popped = {topic for each, topic in self._popped if each == group}
        return popped if info is None else popped.union(info.subscriptions)

    def groups_of_topic(self, topic: str) -> set[str]:
        """The groups that subscribe to a topic now."""
        popped = {group for group, each in self._popped if each == topic}
        return popped.union(group for group, info in self.groups.items() if topic in info.subscriptions)

    def problems(self, group: str) -> list[str]:
        """In which way the members of a group do not go together, a line for each."""
        info = self.groups.get(group)
        return [] if info is None else list(info.problems)

    # -- pops ------------------------------------------------------------------------------------

    def record_pop(self, group: str, topic: str, expression: str, expression_type: str) -> None:
        """Take note of what a pop selects: its client may send no heartbeats."""
        known = self._popped.get((group, topic))
        if known is not None and (known.sub_string, known.expression_type) == (expression, expression_type):
            return
        if known is None and len(self._popped) >= MAX_POPPED:
            del self._popped[next(iter(self._popped))]
        self._popped[group, topic] = SubscriptionData(
            topic=topic, sub_string=expression, expression_type=expression_type, sub_version=self._now_ms()
        )

    def forget_pops(self, *, group: str | None = None, topic: str | None = None) -> None:
        """The group or the topic is deleted."""
        for key in [key for key in self._popped if key[0] == group or key[1] == topic]:
            del self._popped[key]

    # -- heartbeats ------------------------------------------------------------------------------

    def register(
        self,
        channel: ClientChannel,
        data: ConsumerData,
        *,
        notifies: bool = True,
        with_subscriptions: bool = True,
    ) -> bool:
        """Take note of a heartbeat; True when the group has other members or topics now.

        Without subscriptions (5.x, V2) the group keeps those it has.
        """
        group = data.group_name
        info = self.groups.get(group)
        if info is None:
            info = self.groups[group] = ConsumerGroupInfo(group, self._now_ms())
        info.notifies = notifies
        before = info.channels.get(channel.connection), info.subscription_keys.get(channel.connection)
        is_new = info.update_channel(channel, data)
        self._groups_of.setdefault(channel.connection, set()).add(group)
        has_other_topics = False
        if with_subscriptions:
            has_other_topics = info.update_subscriptions(data.subscription_data_set)
            info.subscription_keys[channel.connection] = SubscriptionKey.of(data)
        # Looked for on a change only: it goes over all members.
        if before != (info.channels[channel.connection], info.subscription_keys.get(channel.connection)):
            self._look_for_problems(info)
        if is_new or has_other_topics:
            self._notify(info)
        return is_new or has_other_topics

    def unregister(self, group: str, connection: Connection) -> bool:
        """The client on `connection` leaves a group; False when it was not in it."""
        return self._remove(group, connection, "leaves")

    def connection_closed(self, connection: Connection) -> None:
        """The client on `connection` is gone from all its groups."""
        for group in list(self._groups_of.get(connection, ())):
            self._remove(group, connection, "is gone from")

    def scan(self, now_ms: int, expired_ms: int = CHANNEL_EXPIRED_MS) -> None:
        """Take out members that have not sent a heartbeat for `expired_ms`."""
        expired = [
            (group, channel.connection)
            for group, info in self.groups.items()
            for channel in info.channels.values()
            if channel.is_expired(now_ms, expired_ms)
        ]
        for group, connection in expired:
            self._remove(group, connection, "has sent no heartbeat and is removed from")

    def _remove(self, group: str, connection: Connection, how: str) -> bool:
        info = self.groups.get(group)
        channel = None if info is None else info.remove(connection)
        if info is None or channel is None:
            return False
        _log.info("consumer %s %s group %s", channel, how, group)
        groups = self._groups_of[connection]
        groups.discard(group)
        if not groups:
            del self._groups_of[connection]
        if not info.channels:
            _log.info("group %s has no members any more", group)
            del self.groups[group]
        self._look_for_problems(info)
        self._notify(info)
        return True

    def _notify(self, info: ConsumerGroupInfo) -> None:
        if info.notifies and info.channels and not info.is_broadcasting:
            self._on_change(info.group, list(info.channels.values()))

    def _look_for_problems(self, info: ConsumerGroupInfo) -> None:
        problems = tuple(find_problems(info))
        for line in problems:
            if line not in info.problems:
                _log.warning("%s", line)
        if info.problems and not problems:
            _log.info("group %s: the subscriptions of its members agree again", info.group)
        info.problems = problems
