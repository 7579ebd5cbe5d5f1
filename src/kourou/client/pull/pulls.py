"""Pulls: one request for messages of one queue, and what came back.

Not here: when to pull (pull_service.py, queue_reader.py), what to do with the messages.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

from kourou.client.core.api import ClientApi
from kourou.errors import ResponseError
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import RemotingCommand
from kourou.protocol.headers.pull import PullMessageRequestHeader, PullMessageResponseHeader
from kourou.protocol.message import MessageExt
from kourou.protocol.names import without_namespace
from kourou.protocol.record import decode_records

PULL_TIMEOUT_MS: Final = 30_000
"""How long a pull may take that the broker holds until there are messages."""


class PullStatus(enum.Enum):
    """How a pull ended; RocketMQ's words."""

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
    """What a pull brought. `body` are the records as the broker stores them, one after the other."""

    status: PullStatus
    next_begin_offset: int
    min_offset: int
    max_offset: int
    suggested_broker_id: int
    body: bytes
    broker_name: str
    tags: frozenset[str] = frozenset()
    """Those that were asked for: brokers know tags by a hash only, so `messages` looks again."""
    namespace: str = ""
    """The client's, which users do not see in topics."""

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
    timeout_ms: int = PULL_TIMEOUT_MS,
    code: int = RequestCode.PULL_MESSAGE,
) -> PullResult:
    """Pull once. ResponseError for codes that are no outcome of a pull; RemotingError as it comes."""
    answer = await api.remoting.call(address, api.command(code, header), timeout_ms)
    return pull_result(answer, address, broker_name)


def pull_result(answer: RemotingCommand, address: str, broker_name: str) -> PullResult:
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
    )
