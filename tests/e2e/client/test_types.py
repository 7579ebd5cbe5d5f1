"""What a type checker says of a program: of the bad lines what would be a TypeError, of others nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

PROGRAM = """
import sqlite3
from collections.abc import Sequence
from kourou import AsyncPushConsumer, ConsumeContext, ConsumeResult, Message, MessageExt, MessageQueue
from kourou import Producer, PushConsumer, idempotent
from kourou.client import AsyncDbApiStore, DbApiStore, MemoryStore

def plain(message: MessageExt) -> None: ...
def decides(message: MessageExt, context: ConsumeContext) -> ConsumeResult | None: ...
async def waits(messages: list[MessageExt]) -> None: ...
def by_number(queues: Sequence[MessageQueue], message: Message, arg: int) -> MessageQueue:
    return queues[arg]

def use(consumer: PushConsumer, producer: Producer) -> None:
    consumer.subscribe("T", plain)
    consumer.subscribe("T", "A || B", decides)
    consumer.subscribe("T", "a > 1", waits, expression_type="SQL92")
    consumer.subscribe("T", handler=plain)
    consumer.subscribe("T", lambda message: print(message.body))
    producer.send(Message("T", b"x"), selector=by_number, arg=1)
    consumer.subscribe("T")  # bad
    consumer.subscribe("T", "A")  # bad
    consumer.subscribe("T", plain, "A")  # bad

async def use_async(consumer: AsyncPushConsumer) -> None:
    await consumer.subscribe("T", waits)
    await consumer.subscribe("T", "A", plain)
    await consumer.subscribe("T")  # bad
    await consumer.subscribe("T", "A")  # bad

class Connection:
    async def execute(self, statement: str) -> None: ...
    async def commit(self) -> None: ...
    async def rollback(self) -> None: ...
    async def close(self) -> None: ...

async def connect() -> Connection:
    return Connection()

database = DbApiStore(lambda: sqlite3.connect("shop.db"))
async_database = AsyncDbApiStore(connect)

@idempotent(store=MemoryStore())
def claimed(messages: list[MessageExt]) -> None: ...
@idempotent(store=database)
def one(message: MessageExt, connection: sqlite3.Connection) -> None: ...
@idempotent(store=database, key=None)
def many(messages: list[MessageExt], connection: sqlite3.Connection, context: ConsumeContext) -> None: ...
@idempotent(store=async_database)
async def one_async(message: MessageExt, connection: Connection) -> None: ...
@idempotent(store=async_database)
async def many_async(messages: list[MessageExt], connection: Connection) -> None: ...
@idempotent(store=async_database)  # bad
async def other_connection(message: MessageExt, connection: sqlite3.Connection) -> None: ...

async def use_inbox(consumer: AsyncPushConsumer) -> None:
    await consumer.subscribe("T", claimed)
    await consumer.subscribe("T", one)
    await consumer.subscribe("T", many)
    await consumer.subscribe("T", one_async)
    await consumer.subscribe("T", many_async)
    AsyncPushConsumer("g", orderly=True, offsets=database)
    AsyncPushConsumer("g", orderly=True, offsets=async_database)
    AsyncPushConsumer("g", orderly=True, offsets=MemoryStore())  # bad
"""


def test_calls_that_raise_a_type_error_are_no_types_either(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    command = [sys.executable, "-m", "mypy", "--strict", "--hide-error-context", str(program)]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    reported = {int(line.split(":")[1]) for line in ran.stdout.splitlines() if ": error:" in line}
    bad = {number for number, line in enumerate(PROGRAM.splitlines(), 1) if line.endswith("# bad")}
    assert reported == bad, ran.stdout
