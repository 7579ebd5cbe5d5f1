"""SendBack: has failed messages redelivered, or moved to the dead letters.

The broker of a message puts it into the group's retry topic on request. If that fails, and for orderly
consumers at the last attempt, the client sends a copy there itself, as Java does.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final, Protocol

from kourou.client.core.failure_log import FailureLog
from kourou.client.core.instance import ClientInstance
from kourou.client.core.namespaces import Namespace
from kourou.client.producer.inner_sends import InnerSends
from kourou.errors import KourouError
from kourou.protocol.codes import MessageSysFlag
from kourou.protocol.headers.send import ConsumerSendMsgBackRequestHeader
from kourou.protocol.message import MessageExt
from kourou.protocol.names import dlq_topic, retry_topic
from kourou.protocol.properties import MessageConst
from kourou.wording import counted

_log = logging.getLogger(__name__)

FIRST_RETRY_LEVEL: Final = 3
_COMPRESSION: Final = int(MessageSysFlag.COMPRESSED | MessageSysFlag.COMPRESSION_MASK)


class Returns(Protocol):
    """Has failed messages delivered again."""

    async def send(self, message: MessageExt, delay_level: int) -> bool:
        """Have `message` delivered again, or make it a dead letter; False: it has to be retried locally."""


class SendBack:
    """Sends messages of one group back. After `max_reconsume_times` they become dead letters."""

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        namespace: Namespace,
        max_reconsume_times: int,
        failures: FailureLog,
    ) -> None:
        self._instance = instance
        self._sends = InnerSends(instance)
        self._group = group
        self._namespace = namespace
        self._max_reconsume_times = max_reconsume_times
        self._failures = failures

    async def send(self, message: MessageExt, delay_level: int) -> bool:
        """Have `message` redelivered; below level 0 it becomes a dead letter. False when no broker accepted
        it."""
        try:
            await self._ask_broker(message, delay_level)
            if delay_level < 0 or message.reconsume_times >= self._max_reconsume_times:
                self._warn_dead_letter(message)
            return True
        except KourouError as error:
            _log.warning("group %s: message %s cannot be sent back: %s", self._group, message.msg_id, error)
        return await self.send_copy(message)

    async def _ask_broker(self, message: MessageExt, delay_level: int) -> None:
        address = self._instance.routes.master(message.broker_name) or message.store_host
        header = ConsumerSendMsgBackRequestHeader(
            phy_offset=message.phy_offset,
            group=self._group,
            delay_level=delay_level,
            origin_msg_id=message.msg_id,
            origin_topic=self._namespace.wrap(message.topic),
            max_reconsume_times=self._max_reconsume_times,
        )
        await self._instance.api.send_back(address, header)

    async def send_copy(self, message: MessageExt) -> bool:
        """Send a copy to the retry topic; False when no broker took it."""
        topic = retry_topic(self._group)
        try:
            await self._sends.send(
                topic,
                message.stored_body,
                copy_properties(message, self._namespace),
                flag=message.flag,
                sys_flag=message.sys_flag & _COMPRESSION,
                reconsume_times=message.reconsume_times + 1,
                max_reconsume_times=self._max_reconsume_times,
            )
            if message.reconsume_times >= self._max_reconsume_times:
                self._warn_dead_letter(message)
            return True
        except KourouError as error:
            _log.warning("group %s: no copy of %s in %s: %s", self._group, message.msg_id, topic, error)
            return False

    def _warn_dead_letter(self, message: MessageExt) -> None:
        attempts = counted(message.reconsume_times + 1, "attempt")
        self._failures.warn(
            ("dead letter", message.topic),
            f"group {self._group} gave up a message of {message.topic}",
            f"message {message.msg_id}, after {attempts}, now in {dlq_topic(self._group)}",
        )


def copy_properties(message: MessageExt, namespace: Namespace) -> Mapping[str, str]:
    """The properties of a copy: with its origin, and a delay that grows with each attempt."""
    properties = dict(message.properties)
    properties.pop(MessageConst.PROPERTY_TRANSACTION_PREPARED, None)
    properties.setdefault(MessageConst.PROPERTY_ORIGIN_MESSAGE_ID, message.offset_msg_id)
    properties[MessageConst.PROPERTY_RETRY_TOPIC] = namespace.wrap(message.topic)
    level = FIRST_RETRY_LEVEL + message.reconsume_times
    properties[MessageConst.PROPERTY_DELAY_TIME_LEVEL] = str(level)
    return properties
