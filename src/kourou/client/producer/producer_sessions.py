"""ProducerSessions: what an idempotent producer has opened at the brokers, one session for each broker name.

A session is opened before the first send to a broker, and again when it cannot be continued. It outlives
connections and a change of the master; what the master supports is found out anew for each connection.
Not here: sends (sequenced_sends.py), the sequences of a session (sequence_numbers.py).
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Collection

import msgspec

from kourou.client.core.instance import ClientInstance
from kourou.client.producer.pending_send import QueuedSend
from kourou.client.producer.producer_options import ProducerOptions
from kourou.client.producer.sequence_numbers import Session
from kourou.errors import ClientError, ConnectionLostError, NoRouteError, ProducerFencedError
from kourou.protocol.bodies.message_queue import MessageQueue
from kourou.protocol.bodies.producer_sequences import ProducerSequences
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import RemotingCommand
from kourou.protocol.features import Feature
from kourou.protocol.headers.producers import (
    GetSequencesRequestHeader,
    OpenProducerRequestHeader,
    OpenProducerResponseHeader,
)
from kourou.protocol.producer_sequence import NONCE_BYTES
from kourou.transport.connection import Connection

_log = logging.getLogger(__name__)


class BrokerPlace:
    """What the producer has at the brokers of one name."""

    def __init__(self, broker_name: str) -> None:
        self.broker_name = broker_name
        self.session: Session | None = None
        self.connection: Connection | None = None
        """To the master, whose features are known."""
        self.address = ""
        self.is_supported = False
        self.waiting: dict[QueuedSend, None] = {}
        """Sends that wait for a session, in order."""
        self.reconnecting: dict[QueuedSend, None] = {}
        """Sends with sequences, which wait until it is known what a new connection's broker supports."""
        self.is_serving = False
        """Whether a task works for them."""
        self.opening = asyncio.Lock()
        self.is_reported = False
        self.nonce: str | None = None
        """Of the opening that is not answered yet."""

    @property
    def can_open(self) -> bool:
        """Whether a session may be opened now: not while the sends of one that ends are undecided."""
        return self.session is None or not self.session.is_ending or not self.session.in_flight


class ProducerSessions:
    """The sessions of one producer. `name` is the one that brokers know; None: they give an id."""

    def __init__(
        self, instance: ClientInstance, group: str, options: ProducerOptions, name: str | None
    ) -> None:
        self._instance = instance
        self._group = group
        self._options = options
        self._name = name
        self.places: dict[str, BrokerPlace] = {}
        self.fenced_by: str | None = None
        """The broker that has refused this producer, since another program has opened its name."""

    def place(self, broker_name: str) -> BrokerPlace:
        """What there is at a broker name."""
        place = self.places.get(broker_name)
        if place is None:
            place = self.places[broker_name] = BrokerPlace(broker_name)
        return place

    def is_unsupported(self, broker_name: str) -> bool:
        """Whether the brokers of a name are known not to support sessions."""
        place = self.places.get(broker_name)
        return place is not None and place.connection is not None and not place.is_supported

    async def connect(
        self, place: BrokerPlace, topics: Collection[str] = (), *, with_session: bool = True
    ) -> None:
        """Find out what the broker supports, and open a session unless there is one. A named producer also
        gets its last sequences in `topics`. KourouError if the broker cannot be reached."""
        async with place.opening:
            address = self._master(place.broker_name, next(iter(topics), ""))
            features = await self._instance.features.of(address, self._options.attempt_timeout_ms)
            is_supported = Feature.IDEMPOTENT_PRODUCERS in features
            connection = self._instance.remoting.open_connection(address)
            if not is_supported:
                self._report(place)
            elif with_session:
                if place.session is None or place.session.is_ending:
                    if self.fenced_by is not None:
                        raise self.fenced_error(next(iter(topics), ""))
                    place.session = await self._open_session(place, address)
                await self._request_lasts(place.session, address, topics)
            place.connection, place.address, place.is_supported = connection, address, is_supported
            if connection is None or connection.closed:
                raise ConnectionLostError(address, "it was closed while the producer was opened")

    def _master(self, broker_name: str, topic: str) -> str:
        address = self._instance.routes.master(broker_name)
        if address is None:
            raise NoRouteError(topic, f"broker {broker_name!r} has no master at present")
        return address

    async def _open_session(self, place: BrokerPlace, address: str) -> Session:
        # Attempts of one opening share it: a late one must not fence the session that a later one has got.
        place.nonce = place.nonce or secrets.token_hex(NONCE_BYTES)
        header = OpenProducerRequestHeader(
            producer_group=self._group,
            kourou_name=self._name,
            kourou_allows_gaps=self._options.explicit_sequences,
            kourou_nonce=place.nonce,
        )
        answer = await self._call(address, RequestCode.OPEN_KOUROU_PRODUCER, header)
        opened = answer.header(OpenProducerResponseHeader)
        place.nonce = None
        lasts: dict[str, dict[int, int]] | None = None if self._name is None else {}
        return Session(opened.kourou_producer_id, opened.kourou_epoch, lasts)

    async def _request_lasts(self, session: Session, address: str, topics: Collection[str]) -> None:
        if session.lasts is not None and not self._options.explicit_sequences:
            for topic in topics:
                if topic not in session.lasts:
                    session.lasts[topic] = await self._sequences(session, address, topic)

    async def _sequences(self, session: Session, address: str, topic: str) -> dict[int, int]:
        header = GetSequencesRequestHeader(kourou_producer_id=session.producer_id, topic=topic)
        answer = await self._call(address, RequestCode.GET_KOUROU_SEQUENCES, header)
        return ProducerSequences.decode(answer.body).sequences

    async def _call(self, address: str, code: RequestCode, header: msgspec.Struct) -> RemotingCommand:
        return await self._instance.api.call(
            address, code, header, timeout_ms=self._options.attempt_timeout_ms
        )

    def _report(self, place: BrokerPlace) -> None:
        if not place.is_reported:
            place.is_reported = True
            _log.warning(
                "group %s: broker %s does not support idempotent producers: sends are at least once",
                self._group,
                place.broker_name,
            )

    async def opened(self, broker_name: str, topic: str) -> Session:
        """The session at a broker that has the topic, opened if there is none; ClientError if the broker does
        not support it."""
        if self.fenced_by is not None:
            raise self.fenced_error(topic)
        await self._instance.routes.get(topic, to_publish=True)
        place = self.place(broker_name)
        await self.connect(place)
        if place.session is None or not place.is_supported:
            raise not_supported(broker_name)
        return place.session

    async def last_sequence(self, queue: MessageQueue) -> int:
        """The highest sequence of this producer that a queue has; -1: none. Programs that opened its name
        before are fenced first: it does not change any more unless this producer sends."""
        session = await self.opened(queue.broker_name, queue.topic)
        address = self._master(queue.broker_name, queue.topic)
        return (await self._sequences(session, address, queue.topic)).get(queue.queue_id, -1)

    def fenced_error(self, topic: str, *, may_be_stored: bool = False) -> ProducerFencedError:
        """The error of every send after the producer was fenced."""
        return ProducerFencedError(
            topic,
            f"another program has opened the producer name {self._options.name!r} (answer of "
            f"{self.fenced_by}), and this one sends nothing more; stop one of the two, or give each its own "
            "name, then make a new producer",
            may_be_stored=may_be_stored,
        )


def not_supported(broker_name: str) -> ClientError:
    """The error where an ordinary send would not do."""
    return ClientError(
        f"broker {broker_name!r} does not support idempotent producers; they need brokers of Kourou"
    )
