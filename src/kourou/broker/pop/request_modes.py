"""RequestModes: how each group reads a topic whose queues the broker assigns, kept in
`messageRequestMode.json`.

A slave copies the modes of its master.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from kourou.broker.tables.config_table import ConfigTable
from kourou.protocol.bodies import (
    MessageRequestMode,
    MessageRequestModeSerializeWrapper,
    SetMessageRequestModeRequestBody,
)
from kourou.protocol.names import is_retry_topic
from kourou.store.config_tables import MessageRequestModeTable, load_table

if TYPE_CHECKING:
    from kourou.config.broker import BrokerConfig
    from kourou.store.config_file import JsonConfigFile

_log = logging.getLogger(__name__)


class RequestModes(ConfigTable):
    """The modes by topic and group. `table` is to be changed through the methods only."""

    def __init__(
        self, file: JsonConfigFile, config: Callable[[], BrokerConfig], now_ms: Callable[[], int]
    ) -> None:
        super().__init__(file, now_ms)
        self._config = config
        self.table: dict[str, dict[str, SetMessageRequestModeRequestBody]] = {}

    def load(self) -> None:
        stored = self._file.load_as(lambda raw: load_table(raw, MessageRequestModeTable))
        if stored is not None:
            self.table = stored.message_request_mode_map

    def snapshot(self) -> MessageRequestModeTable:
        return MessageRequestModeTable(
            {topic: dict(sorted(groups.items())) for topic, groups in sorted(self.table.items())}
        )

    def get(self, topic: str, group: str) -> SetMessageRequestModeRequestBody:
        """How the group reads the topic: as it was set, or the default. Retry topics are always pulled."""
        known = self.table.get(topic, {}).get(group)
        if known is not None:
            return known
        config = self._config()
        mode = MessageRequestMode(config.default_message_request_mode)
        if is_retry_topic(topic):
            mode = MessageRequestMode.PULL
        share = config.default_pop_share_queue_num if mode is MessageRequestMode.POP else 0
        return SetMessageRequestModeRequestBody(topic, group, mode, share)

    def set(self, mode: SetMessageRequestModeRequestBody) -> None:
        """Set how a group reads a topic."""
        groups = self.table.setdefault(mode.topic, {})
        if groups.get(mode.consumer_group) != mode:
            groups[mode.consumer_group] = mode
            self.is_dirty = True
            _log.info(
                "group %s reads topic %s by %s, popShareQueueNum %d",
                mode.consumer_group,
                mode.topic,
                mode.mode.value,
                mode.pop_share_queue_num,
            )

    def follow(self, wrapper: MessageRequestModeSerializeWrapper) -> None:
        """Take over a master's modes, and nothing else."""
        if wrapper.message_request_mode_map != self.table:
            self.table = wrapper.message_request_mode_map
            self.is_dirty = True
