"""@idempotent with a real Redis and a real PostgreSQL, each started for these tests."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from kourou.client.idempotence.idempotence import idempotent
from kourou.client.idempotence.idempotence_database import DbApiStore
from kourou.client.idempotence.idempotence_stores import RedisStore
from kourou.client.idempotence.store_protocols import Claim
from kourou.errors import MessageInProgressError
from kourou.protocol.message import Message
from tests.needed import need, need_module

pytestmark = [pytest.mark.slow, pytest.mark.integration]

_START_S = 30
_POSTGRES_USER = "postgres"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


@contextmanager
def running(words: Sequence[str], is_up: Callable[[], object], **options: Any) -> Iterator[None]:
    """A server until the block ends; up as soon as `is_up` raises nothing."""
    server = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **options)
    try:
        deadline = time.monotonic() + _START_S
        while True:
            try:
                is_up()
                break
            except Exception:
                assert time.monotonic() < deadline, f"{words[0]} is not up within {_START_S} s"
                time.sleep(0.05)
        yield
    finally:
        server.terminate()
        server.wait(30)


# -- Redis ---------------------------------------------------------------------------------------


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


# -- PostgreSQL ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def connect() -> Iterator[Callable[[], Any]]:
    """Connections to a PostgreSQL; it does not run as root, so as its own user where we are root."""
    initdb, postgres = (shutil.which(name, path=_postgres_path()) for name in ("initdb", "postgres"))
    need("a PostgreSQL server", initdb and postgres)
    dbapi = need_module("pg8000.dbapi")
    user = {"user": _POSTGRES_USER} if os.getuid() == 0 else {}
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="kourou-pg-") as name:
        folder = Path(name)
        if user:
            shutil.chown(folder, _POSTGRES_USER)
        data = str(folder / "data")
        subprocess.run(
            [str(initdb), "-D", data, "-U", "shop", "-A", "trust", "--no-sync"],
            check=True, capture_output=True, cwd=folder, **user,
        )  # fmt: skip

        def connection() -> Any:
            return dbapi.connect(user="shop", host="127.0.0.1", port=port, database="postgres")

        words = [str(postgres), "-D", data, "-p", str(port), "-k", name, "-h", "127.0.0.1", "-F"]
        with running(words, lambda: connection().close(), cwd=folder, **user):
            yield connection


def _postgres_path() -> str:
    """Debian keeps the server's programs out of the way."""
    found = sorted(map(str, Path("/usr/lib/postgresql").glob("*/bin")), reverse=True)
    return os.pathsep.join([os.environ.get("PATH", ""), *found])


def ask(connect: Callable[[], Any], statement: str) -> list[Any]:
    with closing(connect()) as connection:
        cursor = connection.cursor()
        cursor.execute(statement)
        rows = list(cursor.fetchall()) if cursor.description else []
        connection.commit()
    return rows


def test_key_and_work_are_one_transaction_in_postgresql(connect: Callable[[], Any]) -> None:
    ask(connect, "CREATE TABLE charges (order_id TEXT)")
    store = DbApiStore(connect)
    store.create_tables()
    store.create_tables()
    fails = [True]

    @idempotent(store=store, scope="billing")
    def charge(message: Message, connection: Any) -> None:
        connection.cursor().execute("INSERT INTO charges VALUES (%s)", (message.keys[0],))
        if fails.pop():
            raise RuntimeError("the card was refused")
        fails.append(False)

    order = Message("Orders", b"{}", keys=["order-1"])
    with pytest.raises(RuntimeError, match="refused"):
        charge(order)
    assert ask(connect, "SELECT count(*) FROM charges") == [[0]]
    assert ask(connect, "SELECT count(*) FROM kourou_idempotence") == [[0]]
    fails.append(False)
    for _ in range(3):
        charge(order)
    assert ask(connect, "SELECT order_id FROM charges") == [["order-1"]]
    store.forget_older_than(-60)
    assert ask(connect, "SELECT count(*) FROM kourou_idempotence") == [[0]]


def test_of_many_deliveries_at_once_one_is_handled_with_postgresql(connect: Callable[[], Any]) -> None:
    ask(connect, "CREATE TABLE payments (order_id TEXT)")
    store = DbApiStore(connect, table="payment_keys")
    store.create_tables()
    all_there = threading.Barrier(8, timeout=10)

    @idempotent(store=store, scope="payments")
    def pay(message: Message, connection: Any) -> None:
        connection.cursor().execute("INSERT INTO payments VALUES (%s)", (message.keys[0],))

    def deliver(_: int) -> None:
        all_there.wait()
        pay(Message("Orders", b"{}", keys=["order-1"]))

    with ThreadPoolExecutor(8) as deliveries:
        list(deliveries.map(deliver, range(8)))
    assert ask(connect, "SELECT count(*) FROM payments") == [[1]]
