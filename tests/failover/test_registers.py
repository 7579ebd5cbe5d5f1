"""Consumer offsets and queue locks of a broker are linearizable; porcupine finds planted violations."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from kourou.testing import LocalCluster
from tests.failover.history import History, Operation, read_history
from tests.failover.linearizable import Verdict, porcupine, verdicts
from tests.failover.registers import RegisterClients

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def program() -> Path:
    return porcupine()


def history(*rows: tuple[Any, ...]) -> list[Operation]:
    """Rows of kind, client, begin, end (None: not known), and number."""
    return [
        Operation(
            process=f"client-{client}",
            number=number,
            kind=kind,
            begin_ns=begin,
            end_ns=end,
            outcome="unknown" if end is None else "ok",
            key={"lock": "lock/q", "unlock": "lock/q", "acquire": "master/s"}.get(kind, "offset/q"),
            amount=amount[0] if amount else None,
        )
        for number, (kind, client, begin, end, *amount) in enumerate(rows)
    ]


LINEARIZABLE = {
    "a read of one of two concurrent writes": [
        ("commit", 1, 0, 10, 5),
        ("commit", 2, 0, 10, 6),
        ("fetch", 3, 11, 12, 5),
    ],
    "no offset yet": [("fetch", 1, 0, 1, -1), ("commit", 1, 2, 3, 7), ("fetch", 1, 4, 5, 7)],
    "a write without an answer takes effect later": [
        ("commit", 1, 0, 1, 5),
        ("commit", 2, 2, None, 6),
        ("fetch", 3, 3, 4, 5),
        ("fetch", 3, 5, 6, 6),
    ],
    "a write without an answer never takes effect": [
        ("commit", 1, 0, 1, 5),
        ("commit", 2, 2, None, 6),
        ("fetch", 3, 30, 40, 5),
    ],
    "a lock that is renewed, freed and taken": [
        ("lock", 1, 0, 1, 1),
        ("lock", 1, 2, 3, 1),
        ("lock", 2, 4, 5, 0),
        ("unlock", 2, 6, 7),
        ("lock", 2, 8, 9, 0),
        ("unlock", 1, 10, 11),
        ("lock", 2, 12, 13, 1),
    ],
    "a lock without an answer was granted": [("lock", 1, 0, None), ("lock", 2, 5, 6, 0)],
    "reigns, one of them without an answer": [
        ("acquire", 1, 0, 1, 1),
        ("acquire", 2, 2, None),
        ("acquire", 3, 5, 6, 3),
    ],
}
VIOLATIONS = {
    "an old number is read": [
        ("commit", 1, 0, 1, 5),
        ("commit", 1, 2, 3, 6),
        ("fetch", 2, 4, 5, 5),
    ],
    "two readers see two orders": [
        ("commit", 1, 0, 20, 5),
        ("commit", 2, 0, 20, 6),
        ("fetch", 3, 1, 2, 5),
        ("fetch", 3, 3, 4, 6),
        ("fetch", 3, 5, 6, 5),
    ],
    "a number that was never written": [("commit", 1, 0, 1, 5), ("fetch", 2, 2, 3, 9)],
    "a number is read before it is written": [("fetch", 1, 0, 1, 5), ("commit", 2, 2, 3, 5)],
    "two clients have a lock": [("lock", 1, 0, 1, 1), ("lock", 2, 2, 3, 1)],
    "a lock that is free is refused": [
        ("lock", 1, 0, 1, 1),
        ("unlock", 1, 2, 3),
        ("lock", 2, 4, 5, 0),
    ],
    "another client frees a lock": [
        ("lock", 1, 0, 1, 1),
        ("unlock", 2, 2, 3),
        ("lock", 2, 4, 5, 1),
    ],
    "two masters of one reign": [("acquire", 1, 0, 10, 1), ("acquire", 2, 0, 10, 1)],
    "reigns in the wrong order": [
        ("acquire", 1, 0, 1, 2),
        ("acquire", 2, 2, 3, 1),
    ],
}


@pytest.mark.parametrize("rows", LINEARIZABLE.values(), ids=LINEARIZABLE.keys())
def test_linearizable(program: Path, rows: list[tuple[Any, ...]]) -> None:
    assert all(verdict.is_linearizable for verdict in verdicts(program, history(*rows)))


@pytest.mark.parametrize("rows", VIOLATIONS.values(), ids=VIOLATIONS.keys())
def test_a_violation_is_found_and_its_key_named(
    program: Path, tmp_path: Path, rows: list[tuple[Any, ...]]
) -> None:
    """Beside a key without one."""
    operations = history(*rows, ("commit", 1, 0, 1, 1))
    bad = operations[0].key
    operations[-1].key = "offset/other"
    found = {verdict.key: verdict for verdict in verdicts(program, operations, tmp_path)}
    assert [key for key, verdict in found.items() if not verdict.is_linearizable] == [bad]
    assert Path(found[bad or ""].picture).stat().st_size
    assert found["offset/other"] == Verdict("offset/other", 1, "Ok")


@pytest.mark.parametrize("rows", [VIOLATIONS["an old number is read"], VIOLATIONS["two clients have a lock"]])
def test_what_a_fail_over_may_forget(program: Path, rows: list[tuple[Any, ...]]) -> None:
    """It happened before the last operation, and only until the next read is the state unknown."""
    *before, last = history(*rows)
    key, end_ns = last.key, last.end_ns or 0
    (forget,) = history(("forget", 9, before[-1].begin_ns, last.begin_ns))
    forget.key = key
    assert verdicts(program, [*before, forget, last])[0].is_linearizable
    again = [
        Operation(**{**_fields(each), "begin_ns": each.begin_ns + end_ns}) for each in (before[-1], last)
    ]
    for each in again:
        each.end_ns = each.begin_ns + 1
    assert not verdicts(program, [*before, forget, last, *again])[0].is_linearizable


def _fields(operation: Operation) -> dict[str, Any]:
    return {name: getattr(operation, name) for name in operation.__struct_fields__}


def test_what_failed_and_reads_without_answer_are_left_out(program: Path) -> None:
    operations = history(
        ("commit", 1, 0, 1, 5), ("commit", 1, 2, 3, 6), ("fetch", 1, 4, None), ("fetch", 1, 5, 6, 5)
    )
    operations[1].outcome = "failed"
    assert verdicts(program, operations) == [Verdict("offset/q", 2, "Ok")]


async def test_offsets_and_locks_of_a_broker(program: Path, tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    async with LocalCluster() as mq:
        await mq.create_topic("Registers")
        with History(path) as written:
            async with RegisterClients(mq.namesrv, written, "Registers", clients=8, rate=200):
                await asyncio.sleep(1.5)
    operations = list(read_history(path))
    found = verdicts(program, operations, tmp_path)
    assert {verdict.key.partition("/")[0] for verdict in found} == {"lock", "offset"}
    assert all(verdict.is_linearizable for verdict in found), found
    # The same history with one answer changed is not.
    fetched = [each for each in operations if each.kind == "fetch" and each.outcome == "ok"]
    random.Random(1).choice(fetched[1:]).amount = 1_000_000
    assert not all(verdict.is_linearizable for verdict in verdicts(program, operations))
    granted = [each for each in operations if each.kind == "lock" and each.outcome == "ok"]
    assert {each.amount for each in granted} == {0, 1}
