"""Fixtures for pytest: `rocketmq`, a cluster for the whole run, and `rocketmq_topic`, a topic for one test.

pytest imports this at every start, whether a test uses it or not: nothing else of the package is loaded
until one does. What the cluster is like is the fixture `rocketmq_settings`, for a conftest.py to override.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from kourou.testing.local_cluster import LocalCluster

_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9_-]+")
_LONGEST: Final = 100  # a topic's name has 127 characters, and a number comes behind
_numbers: Final = itertools.count(1)


@pytest.fixture(scope="session")
def rocketmq_settings() -> Mapping[str, Any]:
    """The arguments of the LocalCluster that `rocketmq` is; override it to change them."""
    return {}


@pytest.fixture(scope="session")
def rocketmq(rocketmq_settings: Mapping[str, Any]) -> Iterator[LocalCluster]:
    """A name server and a broker, for all tests of the run; in asyncio tests use `rocketmq.aio`."""
    from kourou.testing.local_cluster import LocalCluster

    with LocalCluster(**rocketmq_settings) as cluster:
        yield cluster


@pytest.fixture
def rocketmq_topic(rocketmq: LocalCluster, request: pytest.FixtureRequest) -> str:
    """The name of a topic that no other test has, with four queues. What an earlier test paused goes on."""
    rocketmq.resume()
    topic = topic_name(request.node.name, next(_numbers))
    rocketmq.create_topic(topic)
    return topic


def topic_name(test: str, number: int) -> str:
    """A topic's name that tells which test it is of.

    >>> topic_name("test_orders[one book-3]", 7)
    'test_orders_one_book-3_7'
    """
    return f"{_NOT_IN_NAMES.sub('_', test)[:_LONGEST].rstrip('_')}_{number}"
