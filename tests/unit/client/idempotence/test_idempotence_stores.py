"""Stores: one contract for memory, SQLite and Redis; bounds and time of each."""

from __future__ import annotations

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kourou.client.idempotence.idempotence_stores import MemoryStore, RedisStore, SqliteStore
from kourou.client.idempotence.store_protocols import Claim, IdempotenceStore


class Clock:
    """A clock in seconds that the test advances."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


class ListedRedis:
    """Of `redis.Redis` the three commands that are used, as Redis documents them; answers are bytes."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.values: dict[str, tuple[str, float]] = {}

    def set(self, name: str, value: str, *, px: int, nx: bool = False) -> bool | None:
        if nx and self.get(name) is not None:
            return None
        self.values[name] = value, self._clock.now + px / 1000
        return True

    def get(self, name: str) -> bytes | None:
        value, expires = self.values.get(name, ("", 0.0))
        return value.encode() if expires > self._clock.now else None

    def eval(self, script: str, numkeys: int, *keys_and_args: str) -> int:
        assert (script, numkeys) == (RedisStore.RELEASE_SCRIPT, 1)
        name, value = keys_and_args
        if self.get(name) != value.encode():
            return 0
        del self.values[name]
        return 1


Made = tuple[IdempotenceStore, Clock]


@pytest.fixture(params=["memory", "sqlite", "redis"])
def made(request: pytest.FixtureRequest, tmp_path: Path) -> Made:
    clock = Clock()
    if request.param == "memory":
        return MemoryStore(done_seconds=100, now=clock), clock
    if request.param == "redis":
        return RedisStore(ListedRedis(clock), done_seconds=100), clock
    store = SqliteStore(tmp_path / "done.db", done_seconds=100, now=clock)
    request.addfinalizer(store.close)
    return store, clock


def test_a_key_is_claimed_once(made: Made) -> None:
    store, _ = made
    assert store.claim("k", "me", 10) is Claim.CLAIMED
    assert store.claim("k", "you", 10) is Claim.IN_PROGRESS
    assert store.claim("k", "me", 10) is Claim.IN_PROGRESS
    assert store.claim("other", "you", 10) is Claim.CLAIMED


def test_a_finished_key_stays_done_for_its_time(made: Made) -> None:
    store, clock = made
    store.claim("k", "me", 10)
    store.finish("k")
    clock.now += 99
    assert store.claim("k", "you", 10) is Claim.DONE
    store.release("k", "me")
    assert store.claim("k", "you", 10) is Claim.DONE
    clock.now += 2
    assert store.claim("k", "you", 10) is Claim.CLAIMED


def test_a_released_key_is_new_again(made: Made) -> None:
    store, _ = made
    store.claim("k", "me", 10)
    store.release("k", "me")
    assert store.claim("k", "you", 10) is Claim.CLAIMED


def test_a_key_left_behind_is_free_after_its_lease(made: Made) -> None:
    store, clock = made
    store.claim("k", "dead", 10)
    clock.now += 9
    assert store.claim("k", "you", 10) is Claim.IN_PROGRESS
    clock.now += 2
    assert store.claim("k", "you", 10) is Claim.CLAIMED
    # Who was too slow cannot give away what is another's now.
    store.release("k", "dead")
    assert store.claim("k", "third", 10) is Claim.IN_PROGRESS


def test_work_that_ended_late_is_done_all_the_same(made: Made) -> None:
    store, clock = made
    store.claim("k", "slow", 10)
    clock.now += 11
    store.claim("k", "you", 10)
    store.finish("k")
    assert store.claim("k", "third", 10) is Claim.DONE
    store.release("k", "you")
    assert store.claim("k", "third", 10) is Claim.DONE


# Redis is atomic by itself.
@pytest.mark.parametrize("made", ["memory", "sqlite"], indirect=True)
def test_of_many_threads_one_gets_the_key(made: Made) -> None:
    store, _ = made
    with ThreadPoolExecutor(8) as pool:
        claims = list(pool.map(lambda number: store.claim("k", str(number), 10), range(64)))
    assert claims.count(Claim.CLAIMED) == 1


def test_memory_forgets_what_was_used_longest_ago() -> None:
    store = MemoryStore(max_keys=3, now=Clock())
    store.claim("at work", "me", 10)
    for number in range(5):
        store.finish(f"k{number}")
        store.claim("k0", "you", 10)
    assert len(store) == 3
    # k0 was asked for again and again, and what is in progress is never forgotten.
    assert store.claim("k0", "you", 10) is Claim.DONE
    assert store.claim("at work", "you", 10) is Claim.IN_PROGRESS
    assert store.claim("k1", "you", 10) is Claim.CLAIMED


def test_sqlite_deletes_what_is_over(tmp_path: Path) -> None:
    clock = Clock()
    with SqliteStore(tmp_path / "done.db", done_seconds=100, now=clock) as store:
        for number in range(500):
            store.finish(f"old-{number}")
        clock.now += 101
        for number in range(1_000):
            store.claim(f"new-{number}", "me", 10)
    counted = sqlite3.connect(tmp_path / "done.db")
    old = counted.execute("SELECT count(*) FROM idempotence WHERE message_key LIKE 'old-%'").fetchone()
    counted.close()
    assert old == (0,)


def test_redis_clients_that_decode_are_understood() -> None:
    class Decoding(ListedRedis):
        def get(self, name: str) -> str | None:  # type: ignore[override]
            value = super().get(name)
            return None if value is None else value.decode()

    store = RedisStore(Decoding(Clock()), prefix="app:")
    store.finish("k")
    assert store.claim("k", "me", 10) is Claim.DONE


def test_redis_keys_have_the_prefix_and_a_time() -> None:
    clock = Clock()
    client = ListedRedis(clock)
    store = RedisStore(client, prefix="app:", done_seconds=7)
    store.claim("k", "me", 0.5)
    assert client.values == {"app:k": ("me", clock.now + 0.5)}
    store.finish("k")
    assert client.values == {"app:k": ("done", clock.now + 7)}
