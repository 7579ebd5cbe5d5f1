"""How the queues of a topic are divided among the members of a group: RocketMQ's AVG and AVG_BY_CIRCLE.

Clients compute their shares, and a broker those of clients that let it assign queues. All must come to the
same shares, those of Apache's. Callers pass both lists sorted: queues by topic, broker name and queue id (the
order of MessageQueue), ids as text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from kourou.protocol.bodies.message_queue import MessageQueue

__all__ = ["AVG", "AVG_BY_CIRCLE", "SHARES", "Share", "average_share", "circle_share", "member_index"]

AVG: Final = "AVG"
AVG_BY_CIRCLE: Final = "AVG_BY_CIRCLE"

Share = Callable[[str, str, Sequence[MessageQueue], Sequence[str]], list[MessageQueue]]
"""The share of a client, by group, client id, queues and client ids; empty if it is not among the ids.
ValueError if there are no queues or no ids."""


def average_share(
    group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
) -> list[MessageQueue]:
    """Contiguous ranges of queues; the first clients get one more each if the division leaves a rest."""
    index = member_index(group, client_id, queues, client_ids)
    if index is None:
        return []
    size, rest = divmod(len(queues), len(client_ids))
    start = index * size + min(index, rest)
    return list(queues[start : start + size + (index < rest)])


def circle_share(
    group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
) -> list[MessageQueue]:
    """Round robin: one queue to each client in turn."""
    index = member_index(group, client_id, queues, client_ids)
    return [] if index is None else list(queues[index :: len(client_ids)])


SHARES: Final[Mapping[str, Share]] = {AVG: average_share, AVG_BY_CIRCLE: circle_share}
"""By the name of the strategy on the wire."""


def member_index(
    group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
) -> int | None:
    """The position of `client_id` in the list; None if it is not registered yet. ValueError: there is nothing
    to share."""
    if not client_id or not queues or not client_ids:
        raise ValueError(
            f"group {group!r}: nothing to share out: client id {client_id!r}, "
            f"{len(queues)} queues, {len(client_ids)} consumers"
        )
    try:
        return client_ids.index(client_id)
    except ValueError:
        return None
