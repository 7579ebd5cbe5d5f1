"""Consumers with an inbox that are killed at a point, and come back.

    python -m tests.e2e.client.kit.inbox_process NAMESRV DATABASE PATH PORT VARIANT

Points are before and after every statement, commit and connection of a handler's path, and around the call
of the handler and the storing of offsets. One consumer runs to its end and counts them. Then, for each of the
points, a consumer of a group of its own is killed there, and started again. All groups read the same
messages.
"""

from __future__ import annotations

import os
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from kourou import Message, MessageExt, Producer, PushConsumer, idempotent
from kourou.client import ConsumeHookContext, ConsumerHook, DbApiStore
from tests.crash.dying_client import die, wait_killed
from tests.e2e.client.kit.inbox_kit import Place

TOPIC = "Orders"
LAST = "last"
TABLE = "inbox"
_AT_ONCE = 12
_LIFE_S = 40.0

VARIANTS: dict[str, dict[str, Any]] = {
    "keys": {"orderly": False, "batch_size": 1},
    "offsets": {"orderly": True, "batch_size": 1},
    "batches": {"orderly": True, "batch_size": 2},
}
"""Concurrent, by keys; orderly, by offsets only; orderly in batches, by both."""


def first_orders(variant: str) -> list[str]:
    """The orders that are there when consumers are killed: the messages of one call."""
    return [f"order-{number}" for number in range(VARIANTS[variant]["batch_size"])]


class Points:
    """Counts the points of one life; dies at one of them."""

    def __init__(self, die_at: int | None) -> None:
        self._die_at = die_at
        self._lock = threading.Lock()
        self.names: list[str] = []

    def at(self, name: str) -> None:
        with self._lock:
            self.names.append(name)
            if len(self.names) == self._die_at:
                die()

    def in_handler(self, name: str) -> None:
        """Only on the path of a handler: other threads store offsets in between, at any time."""
        if "-handler-" in threading.current_thread().name:
            self.at(name)


class WatchedCursor:
    """A cursor with points around its statements."""

    def __init__(self, cursor: Any, points: Points) -> None:
        self._cursor = cursor
        self._points = points

    def execute(self, statement: str, *parameters: Any) -> Any:
        verb = " ".join(statement.split()[:3])
        self._points.in_handler(f"before {verb}")
        result = self._cursor.execute(statement, *parameters)
        self._points.in_handler(f"after {verb}")
        return result

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cursor, name)


class WatchedConnection:
    """A connection with points around everything that changes the database."""

    def __init__(self, connection: Any, points: Points) -> None:
        self._connection = connection
        self._points = points
        points.in_handler("connected")

    def cursor(self, *arguments: Any) -> WatchedCursor:
        return WatchedCursor(self._connection.cursor(*arguments), self._points)

    def commit(self) -> None:
        self._points.in_handler("before commit")
        self._connection.commit()
        self._points.in_handler("after commit")

    def close(self) -> None:
        self._connection.close()
        self._points.in_handler("closed")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


class Around(ConsumerHook):
    """Points around the call of the handler: the second is before the message is acknowledged."""

    def __init__(self, points: Points) -> None:
        self._points = points

    def before_consume(self, context: ConsumeHookContext) -> None:
        self._points.at("before the handler")

    def after_consume(self, context: ConsumeHookContext) -> None:
        self._points.at("after the handler")


class Life:
    """One consumer, from its start until `last` is charged for, or its death."""

    def __init__(self, namesrv: str, place: Place, variant: str) -> None:
        self._namesrv = namesrv
        self._place = place
        self._variant = variant

    def run(self, group: str, until: str, die_at: int | None) -> list[str]:
        points = Points(die_at)
        is_over = threading.Event()
        store = self._store(points)
        if self._variant != "keys":
            store.store_offset = self._watched(store.store_offset, points)

        def insert(connection: Any, keys: Sequence[str]) -> None:
            for key in keys:
                connection.cursor().execute(f"INSERT INTO charges VALUES ('{group}', '{key}')")

        def charge(message: MessageExt, connection: Any) -> None:
            insert(connection, message.keys)

        def charge_all(messages: list[MessageExt], connection: Any) -> None:
            insert(connection, [message.keys[0] for message in messages])

        class Until(ConsumerHook):
            def after_consume(self, context: ConsumeHookContext) -> None:
                if any(until in message.keys for message in context.messages):
                    is_over.set()

        options = VARIANTS[self._variant]
        key = {"key": None} if self._variant == "offsets" else {}
        decorate: Any = idempotent(store=store, scope=group, **key)
        handler = decorate(charge_all if options["batch_size"] > 1 else charge)
        consumer = PushConsumer(
            group,
            namesrv=self._namesrv,
            consume_from="first",
            concurrency=1,
            # The lock of a dead consumer is its own, when it comes back under its name.
            instance_name=group,
            hooks=[Around(points), Until()],
            offsets=store if options["orderly"] else None,
            **options,
        )
        with consumer:
            consumer.subscribe(TOPIC, handler)
            assert is_over.wait(_LIFE_S), f"{group}: not all is consumed"
        return points.names

    def _store(self, points: Points) -> Any:
        def connect() -> Any:
            return WatchedConnection(self._place.connect(), points)

        style = "qmark" if self._place.database == "sqlite" else "pyformat"
        return DbApiStore(connect, table=TABLE, paramstyle=style)

    def _watched(self, store_offset: Callable[..., None], points: Points) -> Callable[..., None]:
        def watched(group: str, queue: Any, *arguments: Any, **options: Any) -> None:
            is_own = queue.topic == TOPIC
            if is_own:
                points.at("before an offset is stored")
            store_offset(group, queue, *arguments, **options)
            if is_own:
                points.at("after an offset is stored")

        return watched


def forked(run: Callable[[], object]) -> int:
    """Run in a process of its own; its id."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        run()
        code = 0
    except BaseException:
        traceback.print_exc()
    os._exit(code)


def wait_well(child: int) -> None:
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code:
        sys.exit(f"a consumer that was not to be killed ended with {code}")


def send(namesrv: str, keys: Sequence[str]) -> None:
    with Producer("shop", namesrv=namesrv) as producer:
        queue = producer.queues(TOPIC)[0]
        for key in keys:
            producer.send(Message(TOPIC, b"{}", keys=[key]), queue=queue)


def main() -> None:
    """Entry point."""
    namesrv, database, path, port, variant = sys.argv[1:]
    place = Place(database, Path(path), int(port))
    life = Life(namesrv, place, variant)
    DbApiStore(place.connect, table=TABLE).create_tables()
    place.query("CREATE TABLE charges (consumer VARCHAR(50), order_id VARCHAR(50))")
    first = first_orders(variant)
    wait_well(forked(lambda: send(namesrv, first)))

    counted = Path(f"{path}.points")

    def count() -> None:
        counted.write_text("\n".join(life.run("counting", first[-1], None)))

    wait_well(forked(count))
    names = counted.read_text().splitlines()
    groups = {number: f"killed-{number}" for number in range(1, len(names) + 1)}
    numbers = list(groups)
    for some in [numbers[start : start + _AT_ONCE] for start in range(0, len(numbers), _AT_ONCE)]:
        children = {number: forked(lambda: life.run(groups[number], first[-1], number)) for number in some}  # noqa: B023
        for number, child in children.items():
            wait_killed(child, f"the consumer that dies at point {number}, {names[number - 1]},")
    wait_well(forked(lambda: send(namesrv, [LAST])))
    for some in [numbers[start : start + _AT_ONCE] for start in range(0, len(numbers), _AT_ONCE)]:
        for child in [forked(lambda: life.run(groups[number], LAST, None)) for number in some]:  # noqa: B023
            wait_well(child)
    print(len(names), *names, sep="\n")


if __name__ == "__main__":
    main()
