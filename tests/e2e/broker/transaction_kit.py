"""A transactional producer that speaks the plain protocol, and looks into a broker's halves."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

from kourou.broker.controller import BrokerController
from kourou.protocol.bodies import HeartbeatData, ProducerData, encode_body
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import RemotingCommand
from kourou.protocol.headers.send import SendMessageResponseHeader
from kourou.protocol.headers.transactions import (
    CheckTransactionStateRequestHeader,
    EndTransactionRequestHeader,
)
from kourou.protocol.message import MessageExt
from kourou.protocol.message_id import parse_offset_msg_id
from kourou.protocol.names import RMQ_SYS_TRANS_HALF_TOPIC, RMQ_SYS_TRANS_OP_HALF_TOPIC
from kourou.protocol.record import decode_record, decode_records
from kourou.protocol.signature import SigningKeys
from kourou.transport.client import RemotingClient
from kourou.transport.request import Processor, Request
from tests.e2e.broker.broker_kit import send_header

GROUP = "PG"
COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True)
class Half:
    """What a producer knows of a half that it has sent."""

    msg_id: str
    queue_offset: int
    phy_offset: int


@dataclass(frozen=True, slots=True)
class Check:
    """A question of the broker."""

    header: CheckTransactionStateRequestHeader
    message: MessageExt

    @property
    def half(self) -> Half:
        """The half that is asked for, as it is to be ended."""
        header = self.header
        return Half(header.msg_id or "", header.tran_state_table_offset, header.commit_log_offset)


class TransactionProducer:
    """One client of a group. `checks` are the questions that came; `decide` answers them at once."""

    def __init__(
        self, address: str, client_id: str = "c1", group: str = GROUP, keys: SigningKeys | None = None
    ) -> None:
        self.address = address
        self.client_id = client_id
        self.group = group
        self.checks: asyncio.Queue[Check] = asyncio.Queue()
        self.decide: Callable[[MessageExt], int] | None = None
        processors: dict[int, Processor] = {RequestCode.CHECK_TRANSACTION_STATE: self._asked}
        self.client = RemotingClient(processors=processors, keys=keys)

    def _asked(self, request: Request) -> None:
        check = Check(request.header(CheckTransactionStateRequestHeader), decode_record(request.body))
        self.checks.put_nowait(check)
        if self.decide is not None:
            header = self.end_header(check.half, self.decide(check.message), from_transaction_check=True)
            request.connection.send_oneway(RemotingCommand.request(RequestCode.END_TRANSACTION, header))

    async def heartbeat(self) -> None:
        """Let the broker know of the group."""
        data = HeartbeatData(
            client_id=self.client_id, producer_data_set=[ProducerData(group_name=self.group)]
        )
        command = RemotingCommand.request(RequestCode.HEART_BEAT, body=encode_body(data))
        assert (await self.client.call(self.address, command)).code == 0

    async def try_half(
        self, body: bytes = b"half", msg_id: str = "TX1", more: str = "", **fields: Any
    ) -> RemotingCommand:
        """Send a half; the answer, whatever it is."""
        properties = (
            f"TRAN_MSG\x01true\x02PGROUP\x01{self.group}\x02UNIQ_KEY\x01{msg_id}\x02TAGS\x01T\x02{more}"
        )
        given = {"producer_group": self.group, "sys_flag": 4, "born_timestamp": now_ms(), **fields}
        header = send_header("TopicTest", properties, **given)
        command = RemotingCommand.request(RequestCode.SEND_MESSAGE_V2, header, body)
        return await self.client.call(self.address, command, 5_000)

    async def half(self, body: bytes = b"half", msg_id: str = "TX1", more: str = "", **fields: Any) -> Half:
        """Send a half that is taken."""
        answer = await self.try_half(body, msg_id, more, **fields)
        assert answer.code == 0, answer.remark
        header = answer.header(SendMessageResponseHeader)
        return Half(msg_id, header.queue_offset, parse_offset_msg_id(header.msg_id).phy_offset)

    def end_header(self, half: Half, end: int, **fields: Any) -> EndTransactionRequestHeader:
        default = {
            "producer_group": self.group,
            "tran_state_table_offset": half.queue_offset,
            "commit_log_offset": half.phy_offset,
            "commit_or_rollback": end,
            "msg_id": half.msg_id,
            "transaction_id": half.msg_id,
        }
        return EndTransactionRequestHeader(**{**default, **fields})

    async def end(self, half: Half, end: int, **fields: Any) -> RemotingCommand:
        """End a half and wait for the answer."""
        header = self.end_header(half, end, **fields)
        return await self.client.call(
            self.address, RemotingCommand.request(RequestCode.END_TRANSACTION, header), 5_000
        )

    async def end_oneway(self, half: Half, end: int, **fields: Any) -> None:
        """End a half as clients do."""
        header = self.end_header(half, end, **fields)
        command = RemotingCommand.request(RequestCode.END_TRANSACTION, header)
        await self.client.send_oneway(self.address, command)

    async def next_check(self, timeout_s: float = 5) -> Check:
        """The next question."""
        return await asyncio.wait_for(self.checks.get(), timeout_s)


@contextlib.asynccontextmanager
async def producing(address: str, *client_ids: str, group: str = GROUP) -> AsyncIterator[Any]:
    """Producers that the broker knows: one, or a list if several ids are given."""
    producers = [TransactionProducer(address, client_id, group) for client_id in client_ids or ("c1",)]
    try:
        for producer in producers:
            await producer.heartbeat()
        yield producers[0] if len(producers) == 1 else producers
    finally:
        for producer in producers:
            await producer.client.stop()


def stored(controller: BrokerController, topic: str, queue_id: int = 0) -> list[MessageExt]:
    """All records of a queue."""
    store = controller.services.store
    result = store.get_message(topic, queue_id, store.min_offset_in_queue(topic, queue_id), 1000)
    return [record for buffer in result.buffers for record in decode_records(bytes(buffer))]


def halves(controller: BrokerController) -> list[MessageExt]:
    """All half records."""
    return stored(controller, RMQ_SYS_TRANS_HALF_TOPIC)


def ops(controller: BrokerController) -> list[bytes]:
    """The bodies of all op records."""
    return [record.stored_body for record in stored(controller, RMQ_SYS_TRANS_OP_HALF_TOPIC)]


async def until(is_so: Callable[[], bool], what: str, timeout_s: float = 5) -> None:
    """Wait until something holds."""
    try:
        async with asyncio.timeout(timeout_s):
            while not is_so():  # noqa: ASYNC110 (nothing tells us)
                await asyncio.sleep(0.005)
    except TimeoutError:
        raise AssertionError(f"not within {timeout_s} s: {what}") from None
