"""AgedCache: fresh answers, old ones, and servers that do not answer."""

from __future__ import annotations

import asyncio

import pytest

from kourou.errors import ConnectError, NoRouteError
from kourou.proxy.links.aged_cache import AgedCache
from kourou.transport.tasks import TaskOwner


class Server:
    """Counts how often it is asked, and answers with that, or an error."""

    def __init__(self) -> None:
        self.asked = 0
        self.error: Exception | None = None

    async def load(self, key: str) -> str:
        self.asked += 1
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        return f"{key}{self.asked}"


@pytest.fixture
async def server() -> Server:
    return Server()


def cache_of(server: Server, **settings: float) -> AgedCache[str, str]:
    return AgedCache(server.load, TaskOwner("test"), what="answer", **settings)  # type: ignore[arg-type]


async def test_callers_share_a_request(server: Server) -> None:
    cache = cache_of(server)
    assert cache.known("a") is None and not server.asked
    assert await asyncio.gather(cache.get("a"), cache.get("a")) == ["a1", "a1"]
    assert cache.known("a") == "a1" and server.asked == 1


async def test_a_caller_that_is_cancelled_leaves_the_others_their_answer(server: Server) -> None:
    cache = cache_of(server)
    first, second = asyncio.ensure_future(cache.get("a")), asyncio.ensure_future(cache.get("a"))
    await asyncio.sleep(0)
    first.cancel()
    assert await second == "a1"


async def test_one_that_is_not_fresh_is_requested_in_the_background(server: Server) -> None:
    cache = cache_of(server, fresh_s=0, old_s=60)
    await cache.get("a")
    assert await cache.get("a") == "a1"
    for _ in range(3):
        await asyncio.sleep(0)
    assert server.asked == 2 and cache.known("a") == "a2"


async def test_an_old_one_is_requested_first(server: Server) -> None:
    cache = cache_of(server, fresh_s=0, old_s=0)
    await cache.get("a")
    assert cache.known("a") is None and await cache.get("a") == "a2"


async def test_an_old_one_is_better_than_no_answer(server: Server) -> None:
    cache = cache_of(server, fresh_s=0, old_s=0)
    server.error = ConnectError("n:1", "refused")
    with pytest.raises(ConnectError):
        await cache.get("a")
    server.error = None
    await cache.get("a")
    server.error = ConnectError("n:1", "refused")
    assert await cache.get("a") == "a2"


async def test_an_error_of_the_server_drops_the_answer(server: Server) -> None:
    cache = cache_of(server, fresh_s=0, old_s=0)
    await cache.get("a")
    server.error = NoRouteError("a", "gone")
    with pytest.raises(NoRouteError):
        await cache.get("a")
    assert len(cache) == 0


async def test_those_requested_longest_ago_go_first(server: Server) -> None:
    cache = cache_of(server, max_entries=2)
    for key in "abc":
        await cache.get(key)
    assert cache.known("a") is None and cache.known("b") and cache.known("c")


async def test_answers_that_are_known_to_be_wrong_are_dropped(server: Server) -> None:
    cache = cache_of(server)
    await cache.get("a")
    await cache.get("b")
    cache.drop(lambda value: value.startswith("a"))
    assert cache.known("a") is None and cache.known("b") == "b2"
    assert await cache.get("a") == "a3"
