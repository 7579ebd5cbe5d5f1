"""A scripted broker that opens idempotent producers, and answers their sends as a test tells it to."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from kourou.protocol.batch import split_batch
from kourou.protocol.bodies import BrokerData, QueueData, TopicRouteData
from kourou.protocol.bodies.producer_sequences import ProducerSequences
from kourou.protocol.codes import RequestCode
from kourou.protocol.features import FEATURES_FIELD, Feature
from kourou.protocol.headers.producers import OpenProducerRequestHeader, OpenProducerResponseHeader
from kourou.protocol.headers.send import SendMessageRequestHeaderV2
from kourou.protocol.producer_sequence import SEQUENCE_PROPERTY
from kourou.protocol.properties import get_property, properties_from_bytes
from kourou.transport.request import Request
from tests.e2e.client.kit.scripted_broker import Answer, ScriptedBroker, scripted


class OpenedBroker:
    """`opens`: the headers of all openings. `lasts`: what the queues have of a named producer."""

    def __init__(self, *, is_supported: bool = True) -> None:
        self.is_supported = is_supported
        self.opens: list[OpenProducerRequestHeader] = []
        self.lost_opens = 0
        """How many openings are to be lost with their connections."""
        self.lasts: dict[int, int] = {}
        self.beside: dict[str, str] = {}
        """Other brokers of the topic: their names and addresses."""
        self.scripted: ScriptedBroker

    def route(self, request: Request) -> None:
        """Of a topic with two queues at this broker, and at each of those beside it."""
        addresses = {"scripted": self.address, **self.beside}
        route = TopicRouteData(
            queue_datas=[
                QueueData(broker_name=name, read_queue_nums=2, write_queue_nums=2, perm=6)
                for name in addresses
            ],
            broker_datas=[
                BrokerData("DefaultCluster", name, {0: address}) for name, address in addresses.items()
            ],
        )
        request.reply(body=route.encode())

    def heartbeat(self, request: Request) -> None:
        request.reply({FEATURES_FIELD: Feature.IDEMPOTENT_PRODUCERS} if self.is_supported else {})

    def open(self, request: Request) -> None:
        header = request.header(OpenProducerRequestHeader)
        count = len(self.opens)
        self.opens.append(header)
        if self.lost_opens:
            self.lost_opens -= 1
            request.connection.close("a test")
            return
        name = header.kourou_name
        producer_id, epoch = (f"{count:016x}", 0) if name is None else (f"@{name}", count)
        request.reply(OpenProducerResponseHeader(kourou_producer_id=producer_id, kourou_epoch=epoch))

    def sequences(self, request: Request) -> None:
        request.reply(body=ProducerSequences(len(self.opens) - 1, self.lasts).encode())

    @property
    def address(self) -> str:
        return self.scripted.address

    @property
    def sent(self) -> list[tuple[int, list[str | None]]]:
        """Of each attempt: its queue, and the sequences of its messages."""
        return [sent_sequences(request) for request in self.scripted.sends]

    @property
    def values(self) -> list[str | None]:
        """The sequences of all messages sent, in order."""
        return [value for _, values in self.sent for value in values]


def sent_sequences(request: Request) -> tuple[int, list[str | None]]:
    """The queue of a send, and the sequences that its messages carry."""
    header = request.header(SendMessageRequestHeaderV2)
    if header.batch:
        texts = [properties_from_bytes(entry.raw_properties) for entry in split_batch(request.body)]
    else:
        texts = [header.properties or ""]
    values = [get_property(text, SEQUENCE_PROPERTY) for text in texts]
    assert header.kourou_sequenced is (True if values[0] is not None else None)
    return header.queue_id, values


@contextlib.asynccontextmanager
async def opened(*answers: Answer, is_supported: bool = True) -> AsyncIterator[OpenedBroker]:
    """Run one."""
    broker = OpenedBroker(is_supported=is_supported)
    others = {
        RequestCode.GET_ROUTEINFO_BY_TOPIC: broker.route,
        RequestCode.HEART_BEAT: broker.heartbeat,
        RequestCode.OPEN_KOUROU_PRODUCER: broker.open,
        RequestCode.GET_KOUROU_SEQUENCES: broker.sequences,
    }
    async with scripted(*answers, others=others) as broker.scripted:
        yield broker
