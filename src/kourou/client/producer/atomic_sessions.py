"""AtomicSessions: where the atomic publishes of a producer are decided, and which ids they get.

The coordinator of a named producer is chosen once, by a hash of the name, and stored at all brokers: any of
them knows it later, also while it is away. A producer without a name uses any broker. The identity is opened
there, beside that of sends: a program that opens a name fences the atomic publishes of programs that opened
it before.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import secrets
import time
import zlib
from functools import partial
from typing import Final

from kourou.client.core.instance import ClientInstance
from kourou.client.producer.atomic_publish import AtomicHandle, AtomicPublish
from kourou.client.producer.producer_options import ProducerOptions
from kourou.errors import ClientError, KourouError, RemotingError
from kourou.protocol.atomic import MAX_OPEN, AtomicId, parse_atomic_id
from kourou.protocol.codes import RequestCode
from kourou.protocol.features import Feature
from kourou.protocol.headers.atomic import (
    GetAtomicCoordinatorRequestHeader,
    GetAtomicCoordinatorResponseHeader,
)
from kourou.protocol.headers.producers import OpenProducerRequestHeader, OpenProducerResponseHeader
from kourou.protocol.producer_sequence import MAX_NAME_LENGTH, NONCE_BYTES

_log = logging.getLogger(__name__)

_SUFFIX: Final = ".atomic"
_DIGEST_LENGTH: Final = 12
# Ids without a name expire after a week without sends: long before, a new one is opened.
_SESSION_S: Final = 24 * 3600.0


class _Session:
    """An identity at its coordinator."""

    def __init__(self, coordinator: str, producer_id: str, epoch: int) -> None:
        self.coordinator = coordinator
        self.producer_id = producer_id
        self.epoch = epoch
        self.opened_s = time.monotonic()
        self.next_number = 0
        self.undecided: set[int] = set()
        self.is_reported = False
        """Whether it was logged that publishes wait for these."""

    @property
    def has_room(self) -> bool:
        """Whether brokers would keep the outcomes of all that are undecided if there were one more."""
        return self.next_number - min(self.undecided, default=self.next_number) < MAX_OPEN

    @property
    def is_old(self) -> bool:
        """Whether a new one should be opened."""
        return time.monotonic() - self.opened_s > _SESSION_S and not self.undecided


class AtomicSessions:
    """The atomic publishes of one producer. `name` is the one that brokers know; None: it has none."""

    def __init__(
        self, instance: ClientInstance, group: str, options: ProducerOptions, name: str | None
    ) -> None:
        self._instance = instance
        self._group = group
        self._options = options
        self._name = None if name is None else atomic_name(name)
        self._session: _Session | None = None
        # Of the opening that is not answered yet: its attempts share it (producer_sessions.py).
        self._nonce: str | None = None
        self._changed = asyncio.Condition()
        self.fenced: KourouError | None = None

    async def begin(self, timeout_ms: int) -> AtomicPublish:
        """A new publish. ClientError: no broker can coordinate it; waits while too many are undecided."""
        if self.fenced is not None:
            raise self.fenced
        async with self._changed:
            session = self._session
            if session is None or self._name is None and session.is_old:
                session = self._session = await self._open()
            if not session.has_room:
                self._report_full(session)
            while not session.has_room:
                await self._changed.wait()
            number = session.next_number
            session.next_number += 1
            session.undecided.add(number)
        atomic_id = AtomicId(session.producer_id, session.epoch, number)
        deadline_ms = int(time.time() * 1000) + timeout_ms
        handle = AtomicHandle(session.coordinator, str(atomic_id), deadline_ms)
        return AtomicPublish(self._instance, self._group, self._options, handle, partial(self.ended, handle))

    def publish(self, handle: AtomicHandle) -> AtomicPublish:
        """A publish that began elsewhere."""
        return AtomicPublish(self._instance, self._group, self._options, handle)

    async def ended(self, handle: AtomicHandle, *, is_lost: bool = False) -> None:
        """A publish is decided, or given up. `is_lost`: the coordinator does not know the producer."""
        atomic_id = parse_atomic_id(handle.atomic_id)
        async with self._changed:
            session = self._session
            if session is not None and (session.producer_id, session.epoch) == atomic_id[:2]:
                session.undecided.discard(atomic_id.number)
                session.is_reported = session.is_reported and not session.has_room
                if is_lost:
                    self._session = None
            self._changed.notify_all()

    def _report_full(self, session: _Session) -> None:
        if not session.is_reported:
            session.is_reported = True
            oldest = AtomicId(session.producer_id, session.epoch, min(session.undecided))
            _log.warning(
                "group %s: an atomic publish waits until %s is decided: a producer may have %d, from the "
                "oldest that is undecided on; end blocks sooner, or use several producers",
                self._group,
                oldest,
                MAX_OPEN,
            )

    # -- opening -----------------------------------------------------------------------------------

    async def _open(self) -> _Session:
        brokers, silent = await self._supporting()
        if self._name is None:
            if not brokers:
                raise _no_broker(silent)
            names = sorted(brokers)
            coordinator = names[zlib.crc32(self._instance.client_id.encode()) % len(names)]
        else:
            coordinator = await self._coordinator(self._name, brokers, silent)
        self._nonce = self._nonce or secrets.token_hex(NONCE_BYTES)
        header = OpenProducerRequestHeader(
            producer_group=self._group, kourou_name=self._name, kourou_nonce=self._nonce
        )
        answer = await self._instance.api.call(brokers[coordinator], RequestCode.OPEN_KOUROU_PRODUCER, header)
        opened = answer.header(OpenProducerResponseHeader)
        self._nonce = None
        return _Session(coordinator, opened.kourou_producer_id, opened.kourou_epoch)

    async def _supporting(self) -> tuple[dict[str, str], list[str]]:
        """The masters that support atomic publishes, by broker name; and those that do not answer."""
        routes = self._instance.routes
        await routes.add_all_brokers()
        masters = {name: routes.master(name) for name in routes.brokers}
        found = await asyncio.gather(*(self._supports(address) for address in masters.values()))
        brokers, silent = {}, []
        for (name, address), is_supported in zip(masters.items(), found, strict=True):
            if is_supported is None or address is None:
                silent.append(name)
            elif is_supported:
                brokers[name] = address
        return brokers, sorted(silent)

    async def _supports(self, address: str | None) -> bool | None:
        if address is None:
            return None
        try:
            return Feature.ATOMIC_PUBLISH in await self._instance.features.of(address)
        except RemotingError:
            return None

    async def _coordinator(self, name: str, brokers: dict[str, str], silent: list[str]) -> str:
        """The broker that coordinates a name, as some broker knows; else one is chosen, and all store it."""
        known = [answer for answer in await self._call_all(brokers, name) if answer]
        if known:
            coordinator = min(known)
            if coordinator not in brokers:
                raise ClientError(
                    f"broker {coordinator!r} coordinates the atomic publishes of {name!r} and cannot be "
                    "reached, or does not support them; start it"
                )
            return coordinator
        if silent or not brokers:
            raise _no_broker(silent, name)
        names = sorted(brokers)
        coordinator = names[zlib.crc32(name.encode()) % len(names)]
        address = brokers[coordinator]
        chosen = await self._request(address, name, coordinator)
        if chosen != coordinator:  # another program was faster
            return await self._coordinator(name, brokers, silent)
        await self._call_all(brokers, name, coordinator)
        return coordinator

    async def _call_all(
        self, brokers: dict[str, str], name: str, coordinator: str | None = None
    ) -> list[str | None]:
        return await asyncio.gather(
            *(self._request(address, name, coordinator) for address in brokers.values())
        )

    async def _request(self, address: str, name: str, coordinator: str | None) -> str | None:
        """The coordinator of a name that a broker knows; `coordinator`, if it knows none."""
        header = GetAtomicCoordinatorRequestHeader(kourou_name=name, kourou_coordinator=coordinator)
        answer = await self._instance.api.call(address, RequestCode.GET_KOUROU_ATOMIC_COORDINATOR, header)
        return answer.header(GetAtomicCoordinatorResponseHeader).kourou_coordinator


def atomic_name(name: str) -> str:
    """The name under which the atomic publishes of a named producer are opened.

    >>> atomic_name("loader-7")
    'loader-7.atomic'
    """
    if len(name) + len(_SUFFIX) <= MAX_NAME_LENGTH:
        return name + _SUFFIX
    digest = hashlib.sha256(name.encode()).hexdigest()[:_DIGEST_LENGTH]
    return f"{name[: MAX_NAME_LENGTH - len(_SUFFIX) - _DIGEST_LENGTH - 1]}.{digest}{_SUFFIX}"


def _no_broker(silent: list[str], name: str | None = None) -> ClientError:
    if not silent:
        return ClientError("no broker of the cluster supports atomic publishes; they need brokers of Kourou")
    away = ", ".join(silent)
    if name is None:
        return ClientError(f"no broker can coordinate atomic publishes: {away} cannot be reached")
    return ClientError(
        f"it is not known which broker coordinates the atomic publishes of {name!r}: {away} cannot be "
        "reached, and none of the others does; start them, or remove them from the name server"
    )
