"""Pytest fixtures: `rocketmq`, a cluster for the whole run, and `rocketmq_topic`, a topic for one test.

pytest imports this module at every start: nothing else of the package is loaded until a test uses a fixture.
A conftest.py configures the cluster by overriding the fixture `rocketmq_settings`.
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
_LONGEST: Final = 100  # a topic's name has at most 127 characters, and a number is appended
_numbers: Final = itertools.count(1)


@pytest.fixture(scope="session")
def rocketmq_settings() -> Mapping[str, Any]:
    """The arguments of the LocalCluster `rocketmq`; override it to change them."""
    return {}


@pytest.fixture(scope="session")
def rocketmq(rocketmq_settings: Mapping[str, Any]) -> Iterator[LocalCluster]:
    """A name server and a broker, for all tests of the run; in asyncio tests use `rocketmq.aio`."""
    from kourou.testing.local_cluster import LocalCluster

    with LocalCluster(**rocketmq_settings) as cluster:
        yield cluster


@pytest.fixture
def rocketmq_topic(rocketmq: LocalCluster, request: pytest.FixtureRequest) -> str:
    """The name of a topic for this test only, with four queues. Resumes brokers that an earlier test
    paused."""
    rocketmq.resume()
    topic = topic_name(request.node.name, next(_numbers))
    rocketmq.create_topic(topic)
    return topic


def topic_name(test: str, number: int) -> str:
    """A topic's name that contains the name of its test.

    >>> topic_name("test_orders[one book-3]", 7)
    'test_orders_one_book-3_7'
    """
    return f"{_NOT_IN_NAMES.sub('_', test)[:_LONGEST].rstrip('_')}_{number}"
