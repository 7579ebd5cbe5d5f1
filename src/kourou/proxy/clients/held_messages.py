"""HeldMessages: the messages that clients hold and whose invisible time the proxy extends.

A push consumer receives messages for 60 s and may take longer. Until it acknowledges one, the proxy extends
the time, by 1, 3, 5, 10, 30 and then 60 min. Each change issues a new receipt handle, but the client knows
only the one that it has received: what it does with that one is done with the current handle. Extensions and
what clients do wait for each other (`HeldMessage.use`).
Not here: the requests (renewals.py).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from kourou.protocol.pop.receipt_handle import ReceiptHandle

if TYPE_CHECKING:
    from kourou.proxy.clients.proxy_client import ProxyClient

_log = logging.getLogger(__name__)

SLOT_S: Final = 5.0
"""How often the proxy looks for messages whose time ends."""
_AHEAD_S: Final = 10.0
"""A time is extended when so much is left of it, or less."""
MAX_HELD: Final = 200_000
"""Messages of all clients, about 1 KiB each. The time of further ones is not extended."""

HeldKey = tuple[str, str, str]
"""Group, topic and the handle that the client has got. A handle does not name its topic."""


class HeldMessage:
    """One message, while a client holds it. Times are those of the loop, in seconds."""

    __slots__ = (
        "_is_used",
        "_waiting",
        "client",
        "expires_s",
        "handle",
        "is_gone",
        "is_settled",
        "key",
        "received_s",
        "reconsume_times",
        "renewals",
        "slot",
    )

    def __init__(
        self,
        client: ProxyClient,
        key: HeldKey,
        handle: ReceiptHandle,
        *,
        reconsume_times: int,
        received_s: float,
        expires_s: float,
    ) -> None:
        self.client = client
        self.key = key
        self.handle = handle
        """The current one."""
        self.reconsume_times = reconsume_times
        self.received_s = received_s
        self.expires_s = expires_s
        self.renewals = 0
        self.slot = 0
        self.is_gone = False
        """Whether it is not extended any more."""
        self.is_settled = False
        """Whether it is acknowledged, returned or a dead letter."""
        self._is_used = False
        self._waiting: deque[Callable[[], None]] | None = None

    @property
    def is_used(self) -> bool:
        """Whether a request with the current handle is under way."""
        return self._is_used

    def use(self, work: Callable[[], None]) -> None:
        """Call `work` once no other request with the handle is under way; it ends with `release`."""
        if not self._is_used:
            self._is_used = True
            work()
        elif self._waiting is None:
            self._waiting = deque((work,))
        else:
            self._waiting.append(work)

    def release(self) -> None:
        """A request with the handle is answered, or was not sent."""
        if self._waiting:
            self._waiting.popleft()()
        else:
            self._is_used = False


class HeldCounts(NamedTuple):
    """Counters since the start."""

    renewed: int
    failed: int
    given_up: int
    not_held: int


class HeldMessages:
    """The messages of all clients, by the time at which they are extended."""

    def __init__(self, max_held: int = MAX_HELD) -> None:
        self._max_held = max_held
        self._by_client: dict[ProxyClient, dict[HeldKey, HeldMessage]] = {}
        self._slots: dict[int, dict[HeldMessage, None]] = {}
        self._count = 0
        self.not_held = 0
        """Messages for which there was no room."""

    def __len__(self) -> int:
        return self._count

    def add(
        self,
        client: ProxyClient,
        key: HeldKey,
        handle: ReceiptHandle,
        *,
        reconsume_times: int,
        received_s: float,
    ) -> None:
        """A client has received a message."""
        if self._count >= self._max_held:
            if not self.not_held:
                _log.warning(
                    "clients hold %d messages; the time of further ones is not extended", self._count
                )
            self.not_held += 1
            return
        held = HeldMessage(
            client,
            key,
            handle,
            reconsume_times=reconsume_times,
            received_s=received_s,
            expires_s=received_s + handle.invisible_time / 1000,
        )
        of_client = self._by_client.get(client)
        if of_client is None:
            of_client = self._by_client[client] = {}
        if (replaced := of_client.get(key)) is not None:
            self._drop(replaced)
        of_client[key] = held
        self._count += 1
        self.schedule(held)

    def find(self, client: ProxyClient, key: HeldKey) -> HeldMessage | None:
        """The message of a handle that the client has got."""
        of_client = self._by_client.get(client)
        return None if of_client is None else of_client.get(key)

    def schedule(self, held: HeldMessage) -> None:
        """Put it where it is found when its time is about to end."""
        if held.is_gone:
            return
        self._unschedule(held)
        held.slot = int((held.expires_s - _AHEAD_S) // SLOT_S)
        slot = self._slots.get(held.slot)
        if slot is None:
            slot = self._slots[held.slot] = {}
        slot[held] = None

    def postpone(self, held: HeldMessage, now_s: float) -> None:
        """Look at it again in the next round."""
        self._unschedule(held)
        held.slot = int(now_s // SLOT_S) + 1
        self._slots.setdefault(held.slot, {})[held] = None

    def remove(self, held: HeldMessage) -> None:
        """It is acknowledged, returned or given up."""
        if held.is_gone:
            return
        self._drop(held)
        of_client = self._by_client.get(held.client)
        if of_client is not None:
            of_client.pop(held.key, None)
            if not of_client:
                del self._by_client[held.client]

    def take_due(self, now_s: float) -> Iterator[HeldMessage]:
        """The messages whose time is about to end; each is scheduled again or removed by the caller."""
        last = int(now_s // SLOT_S)
        for slot in sorted(slot for slot in self._slots if slot <= last):
            yield from list(self._slots.pop(slot))

    def take_all_of(self, client: ProxyClient) -> list[HeldMessage]:
        """The messages of a client that is gone; they are removed."""
        taken = list(self._by_client.pop(client, {}).values())
        for held in taken:
            self._drop(held)
        return taken

    def _drop(self, held: HeldMessage) -> None:
        held.is_gone = True
        self._count -= 1
        self._unschedule(held)

    def _unschedule(self, held: HeldMessage) -> None:
        slot = self._slots.get(held.slot)
        if slot is not None and slot.pop(held, 0) is None and not slot:
            del self._slots[held.slot]
