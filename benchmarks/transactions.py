"""What a transaction costs a broker, sockets left out: `python -m benchmarks.transactions [--json]`.

A broker in this process is fed what the official TransactionProducer sends over one connection: halves
with bodies of 2 KiB, and for each answer an END_TRANSACTION that commits. A commit cycle has as many of both
as threads send at a time. CPU time of the broker's own code: the first quartile over commit cycles, which on
a machine that does other things says more than a mean, and the median.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import tempfile
from pathlib import Path
from statistics import quantiles
from time import process_time, time_ns

import uvloop

from kourou.broker import send_wiring, wiring
from kourou.broker.connection_state import ConnectionState
from kourou.broker.controller import BrokerController
from kourou.config.broker import BrokerConfig
from kourou.protocol.codes import CommandFlag, RequestCode, SerializeType
from kourou.protocol.command import RemotingCommand
from kourou.protocol.headers.send import SendMessageRequestHeaderV2, SendMessageResponseHeader
from kourou.protocol.headers.transactions import EndTransactionRequestHeader
from kourou.protocol.message_id import UniqueIdGenerator, parse_offset_msg_id
from kourou.testing.memory_transport import MemoryTransport
from kourou.transport.connection import Connection, InboundBudget
from kourou.transport.dispatcher import Dispatcher
from kourou.transport.settings import ConnectionLimits

GROUP = "benchmark_transaction_producer"
TOPIC = "OfficialTransactionProducer"
BODY = b"x" * 2048
QUEUES = 8
# As Java's hash table orders them.
END_FIELDS = (
    "producerGroup bname commitLogOffset topic msgId tranStateTableOffset commitOrRollback transactionId "
    "fromTransactionCheck"
).split()
PASSES = 1_500

_new_id = UniqueIdGenerator(ip="127.0.0.1", pid=1, class_loader_hash=1, now_ms=lambda: time_ns() // 1_000_000)


class Producer:
    """One connection of a producer, whose answers are read here."""

    def __init__(self, broker: BrokerController, serialize_type: int) -> None:
        services = broker.services
        transactions = wiring.transactions(services)
        sends, _ = send_wiring.sends(services, transactions.recent, None)
        ends = wiring.transactions_part(services, transactions)
        processors = {**sends.processors(), **ends.processors()}
        self._cycles = services.cycles
        self._serialize_type = serialize_type
        self._opaque = 0
        self._connection = Connection(
            self._cycles,
            Dispatcher(processors),
            ConnectionLimits(),
            InboundBudget(1 << 30),
            new_state=ConnectionState,
        )
        self._transport = MemoryTransport(self._connection)

    def half(self) -> bytes:
        """A frame with a half message, as the Java client writes it."""
        properties = f"TRAN_MSG\x01true\x02UNIQ_KEY\x01{_new_id()}\x02PGROUP\x01{GROUP}\x02"
        header = SendMessageRequestHeaderV2(
            producer_group=GROUP,
            topic=TOPIC,
            default_topic="TBW102",
            default_topic_queue_nums=QUEUES,
            queue_id=self._opaque % QUEUES,
            sys_flag=4,
            born_timestamp=time_ns() // 1_000_000,
            flag=0,
            properties=properties,
            broker_name="bench",
        )
        return self._frame(RemotingCommand.request(RequestCode.SEND_MESSAGE_V2, header, BODY))

    def end(self, answer: RemotingCommand) -> bytes:
        """The frame that commits what was answered."""
        stored = answer.header(SendMessageResponseHeader)
        header = EndTransactionRequestHeader(
            topic=TOPIC,
            producer_group=GROUP,
            tran_state_table_offset=stored.queue_offset,
            commit_log_offset=parse_offset_msg_id(stored.msg_id).phy_offset,
            commit_or_rollback=8,
            msg_id=stored.transaction_id or "",
            transaction_id=stored.transaction_id,
        )
        command = RemotingCommand.request(RequestCode.END_TRANSACTION, header)
        fields = {**(command.ext_fields or {}), "bname": "bench"}
        command.ext_fields = {name: fields[name] for name in END_FIELDS}
        command.flag |= CommandFlag.ONEWAY
        return self._frame(command)

    def _frame(self, command: RemotingCommand) -> bytes:
        self._opaque += 1
        command.opaque, command.serialize_type = self._opaque, self._serialize_type
        return command.encode()

    def feed(self, data: bytes) -> list[RemotingCommand]:
        """Feed one read to the broker and run a commit cycle; returns its responses."""
        return self.timed(data)[1]

    def timed(self, data: bytes) -> tuple[float, list[RemotingCommand]]:
        """The same, with the CPU time of the broker before them."""
        start = process_time()
        self._connection.data_received(data)
        self._cycles.close()
        return process_time() - start, self._transport.commands()


async def measure(root: Path, serialize_type: int, threads: int, profile: str | None) -> list[float]:
    """CPU time of a transaction in microseconds, one value per commit cycle."""
    config = BrokerConfig(
        broker_name="bench",
        broker_ip1="127.0.0.1",
        bind_address="127.0.0.1",
        listen_port=0,
        store_path_root_dir=str(root),
        transaction_check_interval=3_600_000,
    )
    async with BrokerController(config) as broker:
        producer = Producer(broker, serialize_type)
        answers = producer.feed(producer.half())
        profiler = cProfile.Profile() if profile else None
        costs = []
        for _ in range(PASSES):
            ends = len(answers)
            frames = [producer.half() for _ in range(threads)]
            data = b"".join(
                [frame for answer in answers for frame in (producer.end(answer), frames.pop())] + frames
            )
            if profiler:
                profiler.enable()
            seconds, answers = producer.timed(data)
            if profiler:
                profiler.disable()
            await asyncio.sleep(0)
            costs.append(seconds * 1e6 / ends)
        if profiler and profile:
            profiler.dump_stats(profile)
    return costs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=16, help="half messages and ends per commit cycle")
    parser.add_argument("--json", action="store_true", help="JSON headers instead of binary ones")
    parser.add_argument("--profile", help="write a profile there")
    given = parser.parse_args()
    serialize_type = int(SerializeType.JSON if given.json else SerializeType.ROCKETMQ)
    with tempfile.TemporaryDirectory() as text, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        costs = runner.run(measure(Path(text), serialize_type, given.threads, given.profile))
    quarter, half, _ = quantiles(costs, n=4)
    print(f"{quarter:.1f} µs a transaction (median {half:.1f})")


if __name__ == "__main__":
    main()
