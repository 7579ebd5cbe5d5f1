"""ConsumerIdsNotifier: tells the members of a group that they have to share the queues out anew (40)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from kourou.broker.groups.client_channel import ClientChannel
from kourou.errors import RemotingError
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import RemotingCommand
from kourou.protocol.headers import NotifyConsumerIdsChangedRequestHeader

if TYPE_CHECKING:
    from kourou.config.broker import BrokerConfig

_log = logging.getLogger(__name__)


class ConsumerIdsNotifier:
    """The `on_change` of a ConsumerManager. Who misses a notification rebalances 20 s later by itself.

    Changes of one loop iteration are told once: of a thousand members that break off together, none
    need be told a thousand times. With `realTimeNotifyConsumerChange` off they wait for whoever calls
    `send_held`.
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
