"""A broker's transactions on a real store with a disk that fails on demand; producers in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from kourou.broker.hooks import BrokerHooks
from kourou.broker.storage.commit_cycle import CommitCycle
from kourou.broker.storage.inner_message import InnerMessage
from kourou.broker.transactions.end_transaction_processor import EndTransactionProcessor
from kourou.broker.transactions.half_messages import half_properties
from kourou.broker.transactions.transaction_check import TransactionCheck
from kourou.broker.transactions.transactions import Transactions
from kourou.protocol.bodies import ProducerData
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import RemotingCommand
from kourou.protocol.headers.transactions import EndTransactionRequestHeader
from kourou.protocol.message import MessageExt
from kourou.protocol.names import RMQ_SYS_TRANS_HALF_TOPIC, RMQ_SYS_TRANS_OP_HALF_TOPIC
from kourou.transport.cycles import Cycles
from kourou.transport.dispatcher import Dispatcher
from tests.unit.broker.admin_kit import AdminBroker, AdminPeer
from tests.unit.store.message_stores import BORN_HOST, STORE_HOST, read_queue

COMMIT, ROLLBACK = 8, 12
TIMEOUT_MS = 6_000


class HalfBroker(AdminBroker):
    """A broker whose clock stands still and whose halves are looked at when a test says so."""

    def __init__(self, root: Path, **keys: Any) -> None:
        super().__init__(root, **keys)
        self.hooks = BrokerHooks()
        self.store_host = STORE_HOST
        self.timers = None
        self._serve()

    def _serve(self) -> None:
        self.commit_cycle = CommitCycle(self.store, sync_flush_timeout_ms=5_000, waits_for_flush=False)
        self.cycles = Cycles(begin=self.commit_cycle.begin, end=self.commit_cycle.end)
        self.transactions = self.wired(Transactions)
        self.transactions.recover(is_slave=False)
        self.checks = self.wired(TransactionCheck)
        ends = self.wired(EndTransactionProcessor)
        self.dispatch = Dispatcher({**self.processors(), **ends.processors()})

    def restart(self, *, killed: bool = True) -> None:
        """Die and come back; `cut_bytes` of the log are lost."""
        kit = self.store_kit
        self.store = (kit.kill if killed else kit.reopen)(self.store, read_window_bytes=0)
        self._serve()

    def pass_ms(self, ms: int) -> None:
        """Let time pass, for the store too."""
        self.clock.advance(ms)
        self.store_kit.clock.advance(ms)

    def step_ms(self, ms: int) -> None:
        """Set the wall clock, for the store too; the broker notices."""
        self.clock.step(ms)
        self.store_kit.clock.advance(ms)
        self.clock_watch.look()

    # -- halves ----------------------------------------------------------------------------------

    def put_half(self, body: bytes, msg_id: str = "TX1", more: str = "") -> MessageExt:
        """Store a half, as a send does."""
        sent = f"TRAN_MSG\x01true\x02PGROUP\x01PG\x02UNIQ_KEY\x01{msg_id}\x02{more}"
        properties = half_properties(sent.encode(), "T", 1, msg_id).decode()
        message = InnerMessage(RMQ_SYS_TRANS_HALF_TOPIC, 0, body, properties, self.clock(), BORN_HOST)
        self.writer.put_now(message, None)
        self.cycles.close()
        return self.halves()[-1]

    def halves(self) -> list[MessageExt]:
        """All half records, copies too."""
        return read_queue(self.store, RMQ_SYS_TRANS_HALF_TOPIC)

    def op_bodies(self) -> list[bytes]:
        """What the op records say."""
        return [op.stored_body for op in read_queue(self.store, RMQ_SYS_TRANS_OP_HALF_TOPIC)]

    def visible(self) -> list[bytes]:
        """What consumers see."""
        return [message.stored_body for message in read_queue(self.store, "T", 1)]

    def open_halves(self) -> list[int]:
        """The queue_offsets of all halves that have not ended."""
        table = self.transactions.table
        ends = self.transactions.half_queue.max_queue_offset
        return [offset for offset in range(ends) if table.state(offset) == 0]

    async def check(self) -> None:
        """Look at all halves once."""
        checking = asyncio.ensure_future(self.checks.check())
        await asyncio.wait_for(checking, 5)

    def producer(self, port: int = 40_001) -> Producer:
        """A client of group PG."""
        return Producer(self, port)


class Producer(AdminPeer):
    """One connection of a producer."""

    async def join(self) -> Producer:
        """Let the broker know."""
        await self.heartbeat(producer_data_set=[ProducerData(group_name="PG")])
        return self

    def questions(self) -> list[RemotingCommand]:
        """What the broker has asked since the last look."""
        return [each for each in self.received() if each.code == RequestCode.CHECK_TRANSACTION_STATE]

    async def end(self, half: MessageExt, end: int, **fields: Any) -> RemotingCommand:
        """End a half; the answer."""
        header = EndTransactionRequestHeader(
            **{
                "producer_group": "PG",
                "tran_state_table_offset": half.queue_offset,
                "commit_log_offset": half.phy_offset,
                "commit_or_rollback": end,
                "msg_id": "TX1",
                **fields,
            }
        )
        return await self.answer_to(RemotingCommand.request(RequestCode.END_TRANSACTION, header))

    async def answer_to(self, command: RemotingCommand) -> RemotingCommand:
        """The answer, also when one task after the other has to do with it."""
        received = await self.send(command)
        while not (answers := [each for each in received if each.is_response]):
            received = await self.send_nothing()
        return answers[0]

    async def send_nothing(self) -> list[RemotingCommand]:
        """Let the broker go on; what it sends."""
        await self.broker.tasks.wait_idle(5)
        await asyncio.sleep(0)
        return self.received()


@asynccontextmanager
async def half_broker(root: Path, **keys: Any) -> AsyncIterator[HalfBroker]:
    """A broker for the length of a test."""
    broker = HalfBroker(root, **keys)
    try:
        yield broker
    finally:
        await broker.close()
