"""The check at the end of every test with a store."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from kourou.store.check.check import CheckOptions, CheckReport, check_store
from kourou.store.disk.files import Files


def assert_store_ok(
    root: Path, files: Files | None = None, *, deleted_topics: Iterable[str] = ()
) -> CheckReport:
    """Fail with one line for each invariant that the store in `root` violates.

    What the next start repairs is not a failure. Records of `deleted_topics` need no queues.
    """
    options = CheckOptions(deleted_topics=frozenset(deleted_topics))
    report = check_store(files or Files(), root, options=options)
    lines = [found.text(root) for found in report.violations]
    assert report.ok, f"the store in {root} is damaged:\n" + "\n".join(lines)
    return report
