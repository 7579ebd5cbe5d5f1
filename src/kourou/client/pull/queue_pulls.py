"""QueuePulls: pulls of any queue for one group, with their subscription in each request.

What broker the answer suggests is asked next time. Not here: when to pull, what becomes of the messages.
"""

from __future__ import annotations

import asyncio
from typing import Final

from kourou.client.core.instance import ClientInstance
from kourou.client.core.queue_addresses import QueueAddresses
from kourou.client.pull.pulls import PullResult, pull
from kourou.errors import CallTimeoutError, RemotingError
from kourou.protocol.bodies import MessageQueue, SubscriptionData
from kourou.protocol.bodies.route import MASTER_ID
from kourou.protocol.codes import PullSysFlag, RequestCode
from kourou.protocol.features import Feature
from kourou.protocol.headers.pull import PullMessageRequestHeader
from kourou.protocol.versions import V5_0_0

PULL_TIMEOUT_MS: Final = 10_000
"""How long a pull may take that finds what is there (`consumerPullTimeoutMillis`)."""

_SUBSCRIPTION: Final = PullSysFlag.SUBSCRIPTION.value
_SUSPEND: Final = PullSysFlag.SUSPEND.value
_LITE: Final = PullSysFlag.LITE_PULL.value


class QueuePulls:
    """Pulls for one group. `is_lite`: as a lite pull consumer, which brokers of 5.x tell apart."""

    def __init__(
        self, instance: ClientInstance, group: str, addresses: QueueAddresses, *, is_lite: bool = False
    ) -> None:
        self._instance = instance
        self._group = group
        self._addresses = addresses
        self._is_lite = is_lite
        self._pull_from: dict[MessageQueue, int] = {}

    async def pull(
        self,
        queue: MessageQueue,
        subscription: SubscriptionData,
        *,
        queue_offset: int,
        max_messages: int,
        max_bytes: int | None = None,
        suspend_ms: int = 0,
        timeout_ms: int = PULL_TIMEOUT_MS,
    ) -> PullResult:
        """Pull once. With `suspend_ms` the broker waits so long for a message if there is none."""
        deadline = asyncio.get_running_loop().time() + timeout_ms / 1000
        try:
            async with asyncio.timeout_at(deadline):
                address = await self._addresses.find(queue, self._pull_from.get(queue, MASTER_ID))
        except TimeoutError:
            raise CallTimeoutError(
                self._instance.namesrvs.current, RequestCode.GET_ROUTEINFO_BY_TOPIC, timeout_ms
            ) from None
        header = self._header(queue, subscription, queue_offset, max_messages, max_bytes, suspend_ms)
        try:
            features = await self._instance.features.of(address, _left_ms(deadline))
            header.kourou_large_pull = Feature.LARGE_PULL in features or None
            result = await pull(
                self._instance.api,
                address,
                queue.broker_name,
                header,
                timeout_ms=_left_ms(deadline),
                code=self._code(address),
            )
        except RemotingError:
            self._pull_from.pop(queue, None)
            raise
        self._pull_from[queue] = result.suggested_broker_id
        return result

    def forget(self, queue: MessageQueue) -> None:
        """Keep nothing more of a queue."""
        self._pull_from.pop(queue, None)

    def _code(self, address: str) -> RequestCode:
        # Brokers of 4.x know the old code only.
        if self._is_lite and self._instance.broker_versions.get(address, 0) >= V5_0_0:
            return RequestCode.LITE_PULL_MESSAGE
        return RequestCode.PULL_MESSAGE

    def _header(
        self,
        queue: MessageQueue,
        subscription: SubscriptionData,
        queue_offset: int,
        max_messages: int,
        max_bytes: int | None,
        suspend_ms: int,
    ) -> PullMessageRequestHeader:
        flags = _SUBSCRIPTION | (_SUSPEND if suspend_ms else 0) | (_LITE if self._is_lite else 0)
        is_tag = subscription.expression_type == "TAG"
        return PullMessageRequestHeader(
            consumer_group=self._group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=queue_offset,
            max_msg_nums=max_messages,
            sys_flag=flags,
            commit_offset=0,
            suspend_timeout_millis=suspend_ms,
            subscription=subscription.sub_string,
            sub_version=0 if is_tag else subscription.sub_version,
            expression_type=subscription.expression_type,
            max_msg_bytes=max_bytes,
        )


def _left_ms(deadline: float) -> int:
    return max(1, int((deadline - asyncio.get_running_loop().time()) * 1000))
