"""Which queues a client of a group is assigned, and how it is to read them: the answer of QUERY_ASSIGNMENT.

Pure. None stands for no answer: the client keeps what it has. An empty list takes all queues from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kourou.protocol.bodies.assignment import MessageRequestMode, SetMessageRequestModeRequestBody
from kourou.protocol.bodies.message_queue import MessageQueue
from kourou.protocol.queue_shares import SHARES, Share, member_index

__all__ = ["ANY_QUEUE", "assigned_queues"]

ANY_QUEUE: Final = -1
"""The queue_id that stands for all queues of a broker."""


def assigned_queues(
    request_mode: SetMessageRequestModeRequestBody,
    *,
    strategy: str | None,
    client_id: str,
    queues: Sequence[MessageQueue],
    client_ids: Sequence[str],
) -> list[MessageQueue] | None:
    """The share of one client in a group with these members. `queues` are all of the topic, sorted; so are
    `client_ids`."""
    share = SHARES.get(strategy or "")
    if share is None or not queues or not client_ids or not client_id:
        return None
    group = request_mode.consumer_group
    if request_mode.mode is MessageRequestMode.PULL:
        return share(group, client_id, queues, client_ids)
    others = request_mode.pop_share_queue_num
    if others <= 0 or others >= len(client_ids) - 1:
        return [
            MessageQueue(topic, broker, ANY_QUEUE)
            for topic, broker in dict.fromkeys((queue.topic, queue.broker_name) for queue in queues)
        ]
    return _shared_queues(share, group, client_id, queues, client_ids, others)


def _shared_queues(
    share: Share,
    group: str,
    client_id: str,
    queues: Sequence[MessageQueue],
    client_ids: Sequence[str],
    others: int,
) -> list[MessageQueue]:
    """The client's queues and those of the next clients, so that each queue has several readers. With fewer
    queues than clients, each client has one."""
    index = member_index(group, client_id, queues, client_ids)
    if index is None:
        return []
    if len(client_ids) > len(queues):
        return [queues[index % len(queues)]]
    members = (client_ids[(index + step) % len(client_ids)] for step in range(others + 1))
    return sorted({queue for member in members for queue in share(group, member, queues, client_ids)})
