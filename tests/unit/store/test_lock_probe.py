"""Whether a store is in use, found out without touching it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kourou.store import lock_probe
from kourou.store.files import Files
from kourou.store.lock_probe import is_locked


def test_a_lock_is_seen_while_it_is_held(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert is_locked(path) is False and not path.exists()
    lock = Files().lock(path)
    assert is_locked(path) is True
    assert is_locked(path) is True, "asking does not take it away"
    lock.release()
    assert is_locked(path) is False


def test_where_asking_would_lose_a_lock_nothing_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock_probe, "_GET_LOCK", None)
    assert is_locked(tmp_path / "lock") is None
