"""A broker with as many topics and groups as a large company has: for the console, `mqadmin` and metrics.

Each topic has a message; each group has a retry topic, and offsets of two topics, behind the last message in
one of them for every 20th group. Topics and groups are created by requests of many at a time, which only
brokers of RocketMQ 5 understand.

    python -m benchmarks._console_scale NAMESRV [--topics 5000] [--groups 2000]
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Awaitable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TypeVar

from kourou import AsyncProducer, Message
from kourou.admin.groups import update_groups
from kourou.admin.session import Admin
from kourou.admin.targets import Outcome
from kourou.admin.topics import create_topics_on
from kourou.protocol.bodies import MessageQueue, SubscriptionGroupConfig, TopicConfig
from kourou.protocol.names import retry_topic

T = TypeVar("T")

TOPICS = 5_000
GROUPS = 2_000
QUEUES = 4
_BATCH = 500  # topics or groups of a request
_IN_FLIGHT = 200
_LAGGING = 20  # one group of so many
_DEPARTMENTS = ("billing", "catalog", "delivery", "payment", "search", "stock", "support", "web")

STORE_KEYS = {"mappedFileSizeConsumeQueue": "2000", "mappedFileSizeCommitLog": str(256 << 20)}
"""For the broker: a ConsumeQueue for each topic, with little in it."""


def topic_name(number: int) -> str:
    """Names as companies have them: many share a prefix."""
    return f"{_DEPARTMENTS[number % len(_DEPARTMENTS)]}-events-{number:05d}"


def group_name(number: int) -> str:
    """A group's name."""
    return f"{_DEPARTMENTS[number % len(_DEPARTMENTS)]}-workers-{number:05d}"


async def fill(namesrv: str, topics: int = TOPICS, groups: int = GROUPS) -> None:
    """Create topics with messages and groups with lag, on every master."""
    async with Admin(namesrv=namesrv) as admin:
        masters = await admin.masters()
        addresses = [master.address for master in masters]
        for numbers in _batches(range(topics)):
            configs = [TopicConfig(topic_name(number), QUEUES, QUEUES) for number in numbers]
            _check(await create_topics_on(admin, addresses, configs))
        for numbers in _batches(range(groups)):
            settings = [SubscriptionGroupConfig(group_name(number)) for number in numbers]
            _check(await update_groups(admin, addresses, settings))
            # Consumers create these when they connect; lists of groups are read from them.
            retries = [TopicConfig(retry_topic(group_name(number)), 1, 1) for number in numbers]
            _check(await create_topics_on(admin, addresses, retries))
        master = masters[0]
        queues = [MessageQueue(topic_name(number), master.broker_name, 0) for number in range(topics)]
        async with AsyncProducer("scale", namesrv=namesrv) as producer:
            await _gather(producer.send(Message(queue.topic, b"{}"), queue=queue) for queue in queues)
        await _gather(
            admin.api.update_consumer_offset(
                master.address, group_name(number), queue, _offset(number, is_first)
            )
            for number in range(groups)
            for is_first, queue in (
                (True, queues[number % topics]),
                (False, queues[(number * 7 + 1) % topics]),
            )
        )


def _offset(number: int, is_first: bool) -> int:
    """Each queue has one message."""
    return 0 if is_first and number % _LAGGING == 0 else 1


def _check(outcomes: Sequence[Outcome]) -> None:
    for outcome in outcomes:
        if not outcome.is_done:
            raise RuntimeError(f"{outcome.address}: {outcome.problem}")


def _batches(numbers: Iterable[int]) -> Iterator[list[int]]:
    source = iter(numbers)
    while batch := list(islice(source, _BATCH)):
        yield batch


async def _gather(work: Iterable[Awaitable[object]]) -> None:
    source = iter(work)
    while some := list(islice(source, _IN_FLIGHT)):
        await asyncio.gather(*some)


def main() -> None:
    """Fill the brokers of a name server."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("namesrv")
    parser.add_argument("--topics", type=int, default=TOPICS)
    parser.add_argument("--groups", type=int, default=GROUPS)
    options = parser.parse_args()
    began = time.monotonic()
    asyncio.run(fill(options.namesrv, options.topics, options.groups))
    print(f"{options.topics} topics and {options.groups} groups in {time.monotonic() - began:.1f} s")


if __name__ == "__main__":
    main()
