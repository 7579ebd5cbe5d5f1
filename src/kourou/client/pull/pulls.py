"""Pulls: one request for messages of one queue, and its result.

QueuePulls pulls any queue for one group, with the subscription in each request. The broker that a response
suggests gets the next pull; if it does not respond, another one of the same name does.
Not here: when to pull (pull_service.py, queue_reader.py), what is done with the messages.
"""

from __future__ import annotations

import asyncio
import enum
from dataclasses import dataclass
from typing import Final

from kourou.client.core.api import ClientApi
from kourou.client.core.instance import ClientInstance
from kourou.client.core.master_search import is_elsewhere
from kourou.client.core.queue_offsets import QueueAddresses
from kourou.client.core.routes import BrokerAddress, Routes
from kourou.errors import AccountLimitError, CallTimeoutError, KourouError, RemotingError, ResponseError
from kourou.protocol.bodies import MessageQueue, SubscriptionData
from kourou.protocol.bodies.route import MASTER_ID
from kourou.protocol.codes import PullSysFlag, RequestCode, ResponseCode
from kourou.protocol.command import RemotingCommand
from kourou.protocol.features import Feature
from kourou.protocol.headers.pull import PullMessageRequestHeader, PullMessageResponseHeader
from kourou.protocol.message import MessageExt
from kourou.protocol.names import without_namespace
from kourou.protocol.record import decode_records
from kourou.protocol.versions import V5_0_0

SUSPENDED_PULL_TIMEOUT_MS: Final = 30_000
"""Timeout of a pull that the broker holds until there are messages."""


class PullStatus(enum.Enum):
    """How a pull ended; RocketMQ's names."""

    FOUND = enum.auto()
    NO_NEW_MSG = enum.auto()
    NO_MATCHED_MSG = enum.auto()
    OFFSET_ILLEGAL = enum.auto()


_STATUSES: Final[dict[int, PullStatus]] = {
    ResponseCode.SUCCESS: PullStatus.FOUND,
    ResponseCode.PULL_NOT_FOUND: PullStatus.NO_NEW_MSG,
    ResponseCode.PULL_RETRY_IMMEDIATELY: PullStatus.NO_MATCHED_MSG,
    ResponseCode.PULL_OFFSET_MOVED: PullStatus.OFFSET_ILLEGAL,
}


@dataclass(frozen=True, slots=True)
class PullResult:
    """The result of a pull. `body` has the records as the broker stores them."""

    status: PullStatus
    next_begin_offset: int
    min_offset: int
    max_offset: int
    suggested_broker_id: int
    body: bytes
    broker_name: str
    tags: frozenset[str] = frozenset()
    """The selected tags: brokers compare only hashes of tags, so `messages` filters again."""
    namespace: str = ""
    """The client's namespace, which is removed from topics."""
    broker_id: int = MASTER_ID
    """Which broker of that name returned it: the master (0) or a slave."""

    def messages(self) -> list[MessageExt]:
        """The records as messages."""
        found = decode_records(self.body)
        broker_name, max_offset = self.broker_name, self.max_offset
        for message in found:
            message.broker_name = broker_name
            message.queue_max_offset = max_offset
            if self.namespace:
                message.topic = without_namespace(message.topic, self.namespace)
        return [message for message in found if message.tags in self.tags] if self.tags else found


async def pull(
    api: ClientApi,
    address: str,
    broker_name: str,
    header: PullMessageRequestHeader,
    *,
    timeout_ms: int = SUSPENDED_PULL_TIMEOUT_MS,
    code: int = RequestCode.PULL_MESSAGE,
    broker_id: int = MASTER_ID,
) -> PullResult:
    """Pull once. ResponseError for codes that are not a PullStatus, RemotingError if the call fails."""
    answer = await api.exchange(address, api.command(code, header), timeout_ms)
    if answer.code not in _STATUSES:
        raise api.response_error(answer, address)
    return pull_result(answer, address, broker_name, broker_id)


def pull_result(answer: RemotingCommand, address: str, broker_name: str, broker_id: int) -> PullResult:
    """Read the answer to a pull."""
    status = _STATUSES.get(answer.code)
    if status is None:
        raise ResponseError(answer.code, answer.remark or "", address)
    header = answer.header(PullMessageResponseHeader)
    return PullResult(
        status,
        header.next_begin_offset,
        header.min_offset,
        header.max_offset,
        header.suggest_which_broker_id,
        answer.body,
        broker_name,
        broker_id=broker_id,
    )


BEHIND_DELAY_S: Final = 0.1
"""Delay before the same slave is pulled again that does not have an offset yet."""


def is_behind(routes: Routes, result: PullResult, queue_offset: int) -> bool:
    """Whether a slave does not have `queue_offset` yet, and gets the next pull again. It responds at once."""
    return (
        result.status is PullStatus.NO_MATCHED_MSG
        and result.next_begin_offset == queue_offset
        and goes_on_there(routes, result)
    )


def goes_on_there(routes: Routes, result: PullResult) -> bool:
    """Whether the broker that returned `result` gets the next pull of the queue too."""
    following = routes.read_from(result.broker_name, result.suggested_broker_id)
    return following is not None and following.broker_id == result.broker_id


PULL_TIMEOUT_MS: Final = 10_000
"""Timeout of a pull that returns at once (`consumerPullTimeoutMillis`)."""

_SUBSCRIPTION: Final = PullSysFlag.SUBSCRIPTION.value
_SUSPEND: Final = PullSysFlag.SUSPEND.value
_LITE: Final = PullSysFlag.LITE_PULL.value


class QueuePulls:
    """Pulls for one group. `is_lite`: as a lite pull consumer, which brokers of 5.x distinguish."""

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
        """Pull once. With `suspend_ms` the broker waits up to that time for a message. If the account is over
        a limit, the pull is repeated when the broker permits, within `timeout_ms`."""
        deadline = asyncio.get_running_loop().time() + timeout_ms / 1000
        try:
            async with asyncio.timeout_at(deadline):
                place = await self._addresses.find(queue, self._pull_from.get(queue, MASTER_ID))
        except TimeoutError:
            raise CallTimeoutError(
                self._instance.namesrvs.current, RequestCode.GET_ROUTEINFO_BY_TOPIC, timeout_ms
            ) from None
        header = self._header(queue, subscription, queue_offset, max_messages, max_bytes, suspend_ms)
        try:
            result = await self._pull_within_limits(place, queue, header, deadline)
        except KourouError as error:
            # Next the master: a slave that was suggested may not serve the topic.
            self._pull_from.pop(queue, None)
            if is_elsewhere(error):
                self._instance.masters.begin(queue.broker_name)
            raise
        self._pull_from[queue] = result.suggested_broker_id
        return result

    async def _pull_within_limits(
        self, place: BrokerAddress, queue: MessageQueue, header: PullMessageRequestHeader, deadline: float
    ) -> PullResult:
        while True:
            try:
                return await self._pull_or_fail_over(place, queue, header, deadline)
            except AccountLimitError as error:
                wait_s = error.wait_s
                if wait_s is None or asyncio.get_running_loop().time() + wait_s >= deadline:
                    raise
            await asyncio.sleep(wait_s)

    async def _pull_or_fail_over(
        self, place: BrokerAddress, queue: MessageQueue, header: PullMessageRequestHeader, deadline: float
    ) -> PullResult:
        try:
            return await self._pull_at(place, queue, header, deadline)
        except RemotingError as error:
            other = self._instance.routes.fail_over(queue.broker_name, place.address, error)
            if other is None or asyncio.get_running_loop().time() >= deadline:
                raise
        return await self._pull_at(other, queue, header, deadline)

    async def _pull_at(
        self, place: BrokerAddress, queue: MessageQueue, header: PullMessageRequestHeader, deadline: float
    ) -> PullResult:
        features = await self._instance.features.of(place.address, _left_ms(deadline))
        header.kourou_large_pull = Feature.LARGE_PULL in features or None
        return await pull(
            self._instance.api,
            place.address,
            queue.broker_name,
            header,
            timeout_ms=_left_ms(deadline),
            code=self._code(place.address),
            broker_id=place.broker_id,
        )

    def forget(self, queue: MessageQueue) -> None:
        """Forget the suggested broker of a queue."""
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
