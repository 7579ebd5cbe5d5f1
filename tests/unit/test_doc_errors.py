"""docs/errors.md names every class of errors that there is."""

from __future__ import annotations

import inspect
from pathlib import Path

import kourou.errors
from kourou.errors import KourouError

DOCUMENT = Path(__file__).parents[2] / "docs" / "errors.md"


def test_every_error_has_cause_and_cure() -> None:
    text = DOCUMENT.read_text()
    classes = [
        name
        for name, found in inspect.getmembers(kourou.errors, inspect.isclass)
        if issubclass(found, KourouError)
    ]
    assert len(classes) > 25
    assert [
        name for name in classes if f"`{name}`" not in text and f"kourou.errors.{name}`" not in text
    ] == []
