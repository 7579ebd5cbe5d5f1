"""Topics that lost their configuration: queues with messages, but no entry in `topics.json`.

Configuration is written right after it changes, not before the first message is acknowledged; and
a file can be lost. The messages are there, so their topic is made again.
"""

from __future__ import annotations

import logging

from kourou.broker.tables.name_checks import MAX_QUEUE_NUMS
from kourou.broker.tables.topics import TopicConfigManager
from kourou.protocol.codes import PermName
from kourou.store.queue.consume_queues import ConsumeQueues

_log = logging.getLogger(__name__)

_READ_WRITE = int(PermName.READ | PermName.WRITE)


def adopt_orphans(queues: ConsumeQueues, topics: TopicConfigManager) -> list[str]:
    """Make the topics of queues that have none; returns their names."""
    orphans = [topic for topic in queues.topics() if topic not in topics.table]
    for topic in orphans:
        # Not more than any topic may have, whatever number a folder in the store has for a name.
        queue_nums = min(max(queues.queue_ids(topic), default=0) + 1, MAX_QUEUE_NUMS)
        topics.create_in_send_back(topic, queue_nums, _READ_WRITE)
        _log.warning("topic %s has messages and no configuration; it gets %d queues", topic, queue_nums)
    return orphans
