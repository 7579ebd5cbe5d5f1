"""@idempotent with a real Redis, started for these tests. Databases: test_inbox_databases.py."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest

from kourou.client.idempotence.idempotence import idempotent
from kourou.client.idempotence.idempotence_stores import RedisStore
from kourou.client.idempotence.store_protocols import Claim
from kourou.errors import MessageInProgressError
from kourou.protocol.message import Message
from tests.e2e.client.kit.database_servers import free_port, running
from tests.needed import need, need_module

pytestmark = [pytest.mark.slow, pytest.mark.integration]


@pytest.fixture(scope="module")
def redis_client() -> Iterator[Any]:
    binary = shutil.which("redis-server")
    need("a redis-server", binary)
    redis = need_module("redis")
    port = free_port()
    with closing(redis.Redis(port=port)) as client:
        with running([str(binary), "--port", str(port), "--bind", "127.0.0.1", "--save", ""], client.ping):
            yield client


def test_redis_keeps_keys_apart_and_forgets_them_in_time(redis_client: Any) -> None:
    store = RedisStore(redis_client, done_seconds=0.05)
    assert store.claim("k", "me", 10) is Claim.CLAIMED
    assert store.claim("k", "you", 10) is Claim.IN_PROGRESS
    store.release("k", "you")
    assert store.claim("k", "you", 10) is Claim.IN_PROGRESS
    store.release("k", "me")
    assert store.claim("k", "you", 10) is Claim.CLAIMED
    store.finish("k")
    assert store.claim("k", "me", 10) is Claim.DONE
    deadline = time.monotonic() + 10
    while store.claim("k", "me", 0.01) is not Claim.CLAIMED:
        assert time.monotonic() < deadline


def test_of_many_deliveries_at_once_one_is_handled_with_redis(redis_client: Any) -> None:
    handled: list[str] = []
    all_there = threading.Barrier(8, timeout=10)

    @idempotent(store=RedisStore(redis_client), scope="billing")
    def charge(message: Message) -> None:
        handled.append(message.keys[0])
        time.sleep(0.05)  # longer than the others need to come

    def deliver(_: int) -> str:
        all_there.wait()
        try:
            charge(Message("Orders", b"{}", keys=["order-1"]))
        except MessageInProgressError:
            return "later"
        return "done"

    with ThreadPoolExecutor(8) as deliveries:
        ends = list(deliveries.map(deliver, range(8)))
    assert handled == ["order-1"]
    assert ends.count("done") == 1
    charge(Message("Orders", b"{}", keys=["order-1"]))
    assert handled == ["order-1"]
