"""ConnectionState: what a broker keeps with each connection of a client, and loses with it.

Typed at its use, without a cost: `state: ConnectionState = connection.state`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from kourou.protocol.bodies import ConsumerData, SubscriptionData
from kourou.protocol.message_id import encode_host
from kourou.transport.addresses import parse_address
from kourou.transport.connection import Connection
from kourou.transport.request import Request

PullWork: TypeAlias = Callable[[], Coroutine[Any, Any, None]]


@dataclass(slots=True)
class ColdPullQueue:
    """Pulls of one connection that wait for the disk (pull/cold_pulls.py)."""

    waiting: deque[tuple[Request, PullWork]] = field(default_factory=deque)
    under_way: int = 0


@dataclass(slots=True)
class ConnectionState:
    """One for each connection, made when it is accepted."""

    born_host: bytes = b""
    """The peer's address as records keep it; empty before the first send."""
    cold_pulls: ColdPullQueue | None = None
    """None before the first pull that waits for the disk."""
    reads_later: int = 0
    """Pulls of old messages that the fast path answers when there is time (pull/cold_read_share.py)."""
    known_pulls: dict[bytes, Any] = field(default_factory=dict)
    """What was decided for pulls of this connection, for the compiled kernel (pull/fast_pull_path.py)."""
    reads_old: bool = False
    """Whether the last pulls of the fast path were handed over to the thread for old messages."""
    refused_heartbeat: str = ""
    """Why the last heartbeat was refused, so that it is logged once; empty: it was not."""
    heartbeat: Request | None = None
    """The last one that was admitted, which says who is connected. With access control only."""
    subscriptions: dict[str, dict[str, SubscriptionData]] = field(default_factory=dict)
    """By group and topic, as the client's own heartbeat has them.

    The group as a whole has one table, that of the newest heartbeat (groups/consumer_group.py). While a new
    version of an application is rolled out, old and new members subscribe differently: each gets what it has
    subscribed to itself. Apache gives all of them what the newest one has.
    """

    def record_subscriptions(self, data: ConsumerData) -> None:
        """Keep what a heartbeat subscribes to, in place of the one before."""
        self.subscriptions[data.group_name] = {each.topic: each for each in data.subscription_data_set}

    def subscription(self, group: str, topic: str) -> SubscriptionData | None:
        """What the client subscribes to as a member of a group; None without a heartbeat that says so."""
        topics = self.subscriptions.get(group)
        return topics.get(topic) if topics is not None else None


def record_born_host(connection: Connection) -> bytes:
    """Encode the peer's address, once for each connection."""
    state: ConnectionState = connection.state
    host, port = parse_address(connection.remote_address)
    state.born_host = encode_host(host, port)
    return state.born_host
