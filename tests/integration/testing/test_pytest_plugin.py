"""The pytest plugin as a project meets it that has Kourou installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kourou import AsyncProducer, Message, Producer
from kourou.testing import LocalCluster
from kourou.testing.pytest_plugin import topic_name

pytestmark = pytest.mark.slow

HEAVY = ("kourou.embed", "kourou.testing.local_cluster", "msgspec", "numpy", "uvloop")

SUITE = """
import unittest

import pytest

from kourou import AsyncProducer, Message, Producer

topics = []


@pytest.mark.parametrize("word", ["one book", "/two/"])
def test_plain(rocketmq, rocketmq_topic, word):
    topics.append(rocketmq_topic)
    with Producer("shop", namesrv=rocketmq.namesrv) as producer:
        producer.send(Message(rocketmq_topic, word.encode()))
    assert [message.body for message in rocketmq.messages(rocketmq_topic)] == [word.encode()]
    assert rocketmq.broker_addresses[1:]


async def test_asyncio(rocketmq, rocketmq_topic):
    topics.append(rocketmq_topic)
    async with AsyncProducer("shop", namesrv=rocketmq.namesrv) as producer:
        await producer.send(Message(rocketmq_topic, b"one"))
    assert len(await rocketmq.aio.messages(rocketmq_topic)) == 1


class Case(unittest.TestCase):
    @pytest.fixture(autouse=True)
    def mq(self, rocketmq, rocketmq_topic):
        self.topic, self.messages = rocketmq_topic, rocketmq.messages

    def test_in_a_class(self):
        topics.append(self.topic)
        self.assertEqual(self.messages(self.topic), [])


def test_each_had_a_topic_of_its_own():
    assert len(topics) == len(set(topics)) == 4
"""

CONFTEST = """
import pytest



@pytest.fixture(scope="session")
def rocketmq_settings():
    return {"brokers": 2}
"""


def run_pytest(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A run of its own, in a project without any configuration."""
    command = [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider"]
    command += ["-o", "asyncio_default_fixture_loop_scope=function", *arguments]  # else that plugin warns
    environ = {**os.environ, "PYTEST_ADDOPTS": "", "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=120)


def test_a_suite_with_all_kinds_of_tests(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_shop.py").write_text(SUITE)
    ran = run_pytest(tmp_path, "-o", "asyncio_mode=auto")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "5 passed" in ran.stdout


def test_a_suite_that_does_not_use_it_does_not_load_it(tmp_path: Path) -> None:
    (tmp_path / "test_other.py").write_text(
        "import sys\n\n"
        "def test_other():\n"
        "    assert 'kourou.testing.pytest_plugin' in sys.modules\n"
        f"    assert [name for name in {HEAVY!r} if name in sys.modules] == []\n"
    )
    ran = run_pytest(tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_the_fixtures_are_described(tmp_path: Path) -> None:
    ran = run_pytest(tmp_path, "--fixtures")
    for name in ("rocketmq [session scope]", "rocketmq_settings [session scope]", "rocketmq_topic"):
        assert name in ran.stdout
    assert "A name server and a broker, for all tests of the run" in ran.stdout


def test_a_cluster_that_cannot_start_is_an_error_of_the_test_that_needs_it(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST.replace('"brokers": 2', '"brokres": 2'))
    (tmp_path / "test_shop.py").write_text("def test_a(rocketmq_topic): pass\n\ndef test_b(): pass\n")
    ran = run_pytest(tmp_path)
    assert "1 passed, 1 error" in ran.stdout
    assert "LocalCluster has no option 'brokres'; did you mean brokers?" in ran.stdout


def test_here_too(rocketmq: LocalCluster, rocketmq_topic: str) -> None:
    with Producer("test", namesrv=rocketmq.namesrv) as producer:
        producer.send(Message(rocketmq_topic, b"one"))
    assert len(rocketmq.messages(rocketmq_topic)) == 1


async def test_here_too_in_a_coroutine(rocketmq: LocalCluster, rocketmq_topic: str) -> None:
    async with AsyncProducer("test", namesrv=rocketmq.namesrv) as producer:
        await producer.send(Message(rocketmq_topic, b"one"))
    assert len(await rocketmq.aio.messages(rocketmq_topic)) == 1


@pytest.mark.parametrize("test", ["test", "test[" + "x" * 500 + "]", "test[Größe %s]"])
def test_any_test_has_a_topic(test: str) -> None:
    Message(topic_name(test, 123), b".")  # ValueError for what is no topic
