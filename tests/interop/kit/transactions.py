"""Transactions of a lane: producers that are known to the broker, what they send, what they are asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from kourou.protocol.bodies import decode_body
from kourou.protocol.bodies.connections import ProducerConnection
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import RemotingCommand
from kourou.protocol.headers.clients import GetProducerConnectionListRequestHeader
from tests.interop.kit import wire
from tests.interop.kit.cluster import wait_until
from tests.interop.kit.lanes import Lane
from tests.interop.kit.messaging_session import Fields

# The Go client tells of its producers one second after it starts, and then every half minute.
_KNOWN_S: Final = 45


@dataclass(frozen=True, slots=True)
class TransactionProducer:
    """A transaction producer of a lane, one of its group."""

    lane: Lane
    name: str
    group: str

    def send(self, topic: str, label: str, count: int = 2, **options: object) -> list[Fields]:
        """Send messages in transactions; `local` and `checked` say how these end (java/Transactions.java)."""
        sent: list[Fields] = self.lane.client.ask(
            "send-transactions", producer=self.name, topic=topic, label=label, count=count, **options
        )
        assert {message["status"] for message in sent} == {"SEND_OK"}, sent
        return sent

    def send_marked(self, topic: str, label: str, **options: object) -> Any:
        """Send one half message as no transaction producer does, such as in a batch."""
        return self.lane.client.ask("send-marked", producer=self.name, topic=topic, label=label, **options)

    def checks(self, count: int = 0, timeout_s: float = 30) -> list[Fields]:
        """All that the broker asked this producer, once these are `count` questions."""
        asked: list[Fields] = self.lane.client.ask(
            "checks", producer=self.name, count=count, timeoutMs=int(timeout_s * 1000)
        )
        return asked

    def wait_known(self) -> None:
        """Wait until the broker can ask this producer."""
        wait_until(
            self._is_known, timeout_s=_KNOWN_S, what=f"{self.name} among the producers of {self.group}"
        )

    def _is_known(self) -> bool:
        header = GetProducerConnectionListRequestHeader(producer_group=self.group)
        command = RemotingCommand.request(RequestCode.GET_PRODUCER_CONNECTION_LIST, header)
        answer = wire.call(self.lane.cluster.broker.address, command)
        if answer.code != 0:
            return False
        connections = decode_body(answer.body, ProducerConnection).connection_set
        return any(self.name in (connection.client_id or "").split("@") for connection in connections)

    def stop(self) -> None:
        """Stop it."""
        self.lane.client.stop(self.name)


def start_producer(lane: Lane, group: str) -> TransactionProducer:
    """Start one more producer of a group; `wait_known()` waits until it may be asked."""
    name = lane.new_name("transactions")
    lane.client.ask("start-transactions", name=name, group=group, namesrv=lane.cluster.namesrv)
    producer = TransactionProducer(lane, name, group)
    # A producer registers only with the brokers of topics that it has sent to.
    producer.send(lane.new_topic("first"), "first", 1, local="commit", checked="commit")
    return producer
