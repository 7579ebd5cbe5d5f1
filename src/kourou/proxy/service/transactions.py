"""EndTransaction: commit and rollback of half messages.

A client names a half message by its topic and transaction id; brokers want its place. The place is kept from
the send, or from the last check by the broker, for 30 s, as in Apache's proxy. After that, or after a restart
of the proxy, the broker's check decides: the client gets INTERNAL_SERVER_ERROR, as from Apache's.
Not here: passing checks on to clients (broker_requests.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final, NamedTuple

from kourou.errors import ProtocolError, ResponseError
from kourou.protocol.codes import MessageSysFlag, RequestCode, ResponseCode
from kourou.protocol.command import RemotingCommand
from kourou.protocol.headers.send import SendMessageResponseHeader
from kourou.protocol.headers.transactions import (
    CheckTransactionStateRequestHeader,
    EndTransactionRequestHeader,
)
from kourou.protocol.message_id import parse_offset_msg_id
from kourou.proxy.clients.proxy_client import ProxyClient
from kourou.proxy.http2.call import Handler
from kourou.proxy.messages.names import topic_name
from kourou.proxy.messages.statuses import StatusError, make_status
from kourou.proxy.service.handlers import Answer, HandlerMaker, path_of
from kourou.proxy.wire.rocketmq_v2 import (
    Code,
    EndTransactionRequest,
    EndTransactionResponse,
    TransactionResolution,
    TransactionSource,
)

KEPT_S: Final = 30.0
"""How long the place of a half message is known (transactionDataExpireMillis)."""
_MAX_KEPT: Final = 100_000
_TIMEOUT_MS: Final = 3_000
_TYPES: Final[dict[int, int]] = {
    TransactionResolution.COMMIT: MessageSysFlag.TRANSACTION_COMMIT_TYPE.value,
    TransactionResolution.ROLLBACK: MessageSysFlag.TRANSACTION_ROLLBACK_TYPE.value,
}
_UNDECIDED: Final = 0


class _Half(NamedTuple):
    """Where a half message is."""

    broker_name: str
    queue_offset: int
    phy_offset: int
    known_until_s: float


class Transactions:
    """The RPC, and the half messages that it can end."""

    def __init__(self, *, kept_s: float = KEPT_S, max_kept: int = _MAX_KEPT) -> None:
        self._loop = asyncio.get_running_loop()
        self._kept_s = kept_s
        self._max_kept = max_kept
        # By topic and transaction id; all are kept equally long, so the oldest is the first.
        self._halves: dict[tuple[str, str], _Half] = {}

    def __len__(self) -> int:
        return len(self._halves)

    def handlers(self, make: HandlerMaker) -> Mapping[str, Handler]:
        """Its handler, by path."""
        work = make.by_callback(EndTransactionRequest, EndTransactionResponse, self.end)
        return {path_of("EndTransaction"): work}

    # -- half messages -----------------------------------------------------------------------

    def stored(
        self, topic: str, transaction_id: str, broker_name: str, header: SendMessageResponseHeader
    ) -> None:
        """A broker has stored a half message."""
        try:
            phy_offset = parse_offset_msg_id(header.msg_id).phy_offset
        except ProtocolError:  # not of a broker that we know; it will check the half
            return
        self._keep(topic, transaction_id, broker_name, header.queue_offset, phy_offset)

    def checked(
        self, client: ProxyClient, topic: str, broker_name: str, check: CheckTransactionStateRequestHeader
    ) -> None:
        """A broker has asked a client about a half message, maybe a new copy of it."""
        transaction_id = check.transaction_id or check.msg_id
        if transaction_id and broker_name:
            place = check.tran_state_table_offset, check.commit_log_offset
            self._keep(topic, transaction_id, broker_name, *place)

    def _keep(
        self, topic: str, transaction_id: str, broker_name: str, queue_offset: int, phy_offset: int
    ) -> None:
        now_s = self._loop.time()
        halves, key = self._halves, (topic, transaction_id)
        halves.pop(key, None)
        while halves:
            oldest = next(iter(halves))
            if halves[oldest].known_until_s > now_s and len(halves) < self._max_kept:
                break
            del halves[oldest]
        halves[key] = _Half(broker_name, queue_offset, phy_offset, now_s + self._kept_s)

    # -- the RPC -----------------------------------------------------------------------------

    def end(
        self,
        client: ProxyClient,
        request: EndTransactionRequest,
        answer: Answer[EndTransactionResponse],
    ) -> None:
        """EndTransaction."""
        topic, transaction_id = topic_name(request.topic), request.transaction_id
        if not transaction_id.strip():
            raise StatusError(Code.INVALID_TRANSACTION_ID, "transaction_id is blank")
        key = topic, transaction_id
        half = self._halves.get(key)
        if half is None or half.known_until_s <= self._loop.time():
            raise StatusError(
                Code.INTERNAL_SERVER_ERROR,
                f"transaction {transaction_id:.100} of topic {topic} is not known here (any more): "
                "its broker will check it",
            )
        header = EndTransactionRequestHeader(
            topic=topic,
            producer_group=topic,
            tran_state_table_offset=half.queue_offset,
            commit_log_offset=half.phy_offset,
            commit_or_rollback=_TYPES.get(request.resolution, _UNDECIDED),
            from_transaction_check=request.source == TransactionSource.SOURCE_SERVER_CHECK,
            msg_id=request.message_id,
            transaction_id=transaction_id,
        )
        command = RemotingCommand.request(RequestCode.END_TRANSACTION, header)
        link = client.link(half.broker_name)
        if header.commit_or_rollback == _UNDECIDED:
            # Brokers do not answer that; they ask again later.
            link.send_oneway(command)
            answer.send(EndTransactionResponse(status=make_status(Code.OK)))
            return

        def ended(response: RemotingCommand) -> None:
            if response.code != ResponseCode.SUCCESS:
                raise ResponseError(response.code, response.remark or "", half.broker_name)
            self._halves.pop(key, None)
            answer.send(EndTransactionResponse(status=make_status(Code.OK)))

        answer.after(link.call_nowait(command, _TIMEOUT_MS), ended)
