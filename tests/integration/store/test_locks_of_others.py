"""Locks between processes: this one, another Kourou, and a program that locks as Apache's broker does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kourou.errors import StoreLockedError
from kourou.store.disk.files import Files
from tests.unit.store.message_stores import StoreKit, bodies, listing, put

# What Apache's broker does, by the same system call: lock byte 0 of the file.
_LOCK_AS_JAVA = """
import fcntl, sys
file = open(sys.argv[1], "r+")
try:
    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
except OSError:
    print("refused", flush=True)
else:
    print("locked", flush=True)
    sys.stdin.read()
"""


def other_process(path: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", _LOCK_AS_JAVA, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_a_lock_of_another_program_is_seen_with_its_pid(tmp_path: Path) -> None:
    (tmp_path / "lock").write_text("lock")
    with other_process(tmp_path / "lock") as holder:
        assert holder.stdout is not None and holder.stdout.readline() == "locked\n"
        with pytest.raises(StoreLockedError) as refused:
            Files().lock(tmp_path / "lock")
        assert refused.value.holder_pid == holder.pid
        holder.communicate("")
    Files().lock(tmp_path / "lock").release()


def test_another_program_sees_our_lock(tmp_path: Path) -> None:
    with Files().lock(tmp_path / "lock"), other_process(tmp_path / "lock") as other:
        output, _ = other.communicate("")
    assert output == "refused\n"


def test_a_store_in_use_by_another_process(tmp_path: Path) -> None:
    with StoreKit(tmp_path / "store") as kit:
        put(kit.open(), b"x")
        kit.close()
        code = (
            "import sys; from pathlib import Path; from kourou.store.disk.file_lock import FileLock\n"
            "lock = FileLock.acquire(Path(sys.argv[1])); print('locked', flush=True); sys.stdin.read()"
        )
        with subprocess.Popen(
            [sys.executable, "-c", code, str(kit.root / "lock")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as holder:
            assert holder.stdout is not None
            assert holder.stdout.readline() == b"locked\n"
            before = listing(kit.root)
            with pytest.raises(StoreLockedError, match=f"in use by process {holder.pid}"):
                kit.open()
            assert listing(kit.root) == before
            holder.communicate()
        assert bodies(kit.open()) == [b"x"]
