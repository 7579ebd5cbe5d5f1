"""What a fork does to a client's shared parts."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kourou.client.core.unique_id import UniqueIds
from kourou.client.idempotence.idempotence_stores import SqliteStore
from kourou.client.idempotence.store_protocols import Claim
from kourou.protocol.message_id import parse_unique_id


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_after_a_fork_parent_and_child_make_different_ids() -> None:
    ids = UniqueIds(ip="127.0.0.1", now_ms=lambda: 1_794_711_773_372)
    ids.next_id()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        # Nothing of the test's own end may run twice: leave at once.
        try:
            os.write(writing, ids.next_id().encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        of_child = parse_unique_id(answer.read())
    assert os.waitpid(child, 0)[1] == 0
    of_parent = parse_unique_id(ids.next_id())
    assert of_child.pid == child & 0xFFFF
    assert of_parent.pid == os.getpid() & 0xFFFF
    assert of_child.class_loader_hash != of_parent.class_loader_hash


def _claim_in_child(store: SqliteStore, answer: Callable[[str], None]) -> None:
    answer(f"{store.claim('k', 'child', 10).name} {store.claim('new', 'child', 10).name}")


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_sqlite_goes_on_in_a_forked_process(tmp_path: Path) -> None:
    if "fork" not in multiprocessing.get_all_start_methods():
        pytest.skip("this system cannot fork")
    forking = multiprocessing.get_context("fork")
    with SqliteStore(tmp_path / "done.db") as store:
        store.claim("k", "parent", 60)
        answers = forking.SimpleQueue()
        child = forking.Process(target=_claim_in_child, args=(store, answers.put))
        child.start()
        child.join(30)
        assert child.exitcode == 0
        assert answers.get() == "IN_PROGRESS CLAIMED"
        assert store.claim("new", "parent", 10) is Claim.IN_PROGRESS


def test_a_portal_inherited_by_a_fork_says_so_and_the_child_can_have_its_own() -> None:
    # In a process of its own: the test's has threads that a fork should not meet.
    program = """
import asyncio, os, sys
from kourou.client.sync.blocking_portal import enter_portal, leave_portal
from kourou.errors import ClientStateError

async def answer():
    return 42

portal = enter_portal()
assert portal.call(answer) == 42
child = os.fork()
if child == 0:
    try:
        portal.call(answer)
    except ClientStateError as error:
        ok = "before a fork" in str(error)
    own = enter_portal()
    ok = ok and own is not portal and own.call(answer) == 42
    leave_portal(own)
    leave_portal(portal)
    os._exit(0 if ok else 1)
_, status = os.waitpid(child, 0)
assert portal.call(answer) == 42
leave_portal(portal)
sys.exit(os.waitstatus_to_exitcode(status))
"""
    ran = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", program], capture_output=True, timeout=60
    )
    assert (ran.returncode, ran.stderr) == (0, b"")
