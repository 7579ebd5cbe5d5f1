"""The permissions of a topic: read, write, both."""

from __future__ import annotations

from dataclasses import dataclass

from kourou.admin.session import Admin
from kourou.admin.targets import Outcome, masters_of, on_each
from kourou.admin.topics import create_topic
from kourou.errors import ConfigError
from kourou.protocol.bodies import QueueData, TopicConfig, TopicRouteData
from kourou.protocol.bodies.route import MASTER_ID


@dataclass(frozen=True, slots=True)
class PermChange:
    """A changed permission of a topic."""

    config: TopicConfig
    """Of the given broker, or of the first in the topic's route."""
    old_perm: int
    brokers: list[Outcome]
    is_same: bool = False
    """Whether the permission was the same, and nothing was done."""


async def change_topic_perm_on_broker(admin: Admin, topic: str, perm: int, broker: str) -> PermChange:
    """Change it on one broker, given by address or name; ConfigError if that is not a master of the topic."""
    route = await admin.route(topic)
    address = await admin.broker_address(broker)
    old = _queue_data(route, address)
    if old is None:
        raise ConfigError(
            f"updateTopicPerm error broker not exit or broker is not master!. {address} is not a master of "
            f"topic {topic}; topicRoute shows them"
        )
    config = _config(route, topic, old, perm)
    if old.perm == perm:
        return PermChange(config, perm, [Outcome(address)], is_same=True)
    await create_topic(admin, address, config)
    return PermChange(config, old.perm, [Outcome(address)])


async def change_topic_perm_in_cluster(admin: Admin, topic: str, perm: int, cluster: str) -> PermChange:
    """Change it on all masters of a cluster. Each keeps its number of queues; one without the topic gets
    that of the first broker."""
    route = await admin.route(topic)
    if not route.queue_datas:
        raise ConfigError(f"topic {topic} has no queue on any broker now")
    first = route.queue_datas[0]
    masters = [master.address for master in await masters_of(admin, cluster)]

    async def change(address: str) -> None:
        await create_topic(admin, address, _config(route, topic, _queue_data(route, address) or first, perm))

    return PermChange(_config(route, topic, first, perm), first.perm, await on_each(masters, change))


def _queue_data(route: TopicRouteData, address: str) -> QueueData | None:
    """The queues of a topic on the master with an address; None if it has none."""
    name = next(
        (data.broker_name for data in route.broker_datas if data.broker_addrs.get(MASTER_ID) == address), None
    )
    return next((data for data in route.queue_datas if data.broker_name == name), None)


def _config(route: TopicRouteData, topic: str, old: QueueData, perm: int) -> TopicConfig:
    return TopicConfig(
        topic_name=topic,
        read_queue_nums=old.read_queue_nums,
        write_queue_nums=old.write_queue_nums,
        perm=perm,
        topic_sys_flag=old.topic_sys_flag,
        order=bool(route.order_topic_conf),
    )
