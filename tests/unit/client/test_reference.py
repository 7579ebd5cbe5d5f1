"""docs/client-options.md is what the code makes of the clients' options."""

from __future__ import annotations

from pathlib import Path

from kourou.client.reference import reference

DOCUMENT = Path(__file__).parents[3] / "docs" / "client-options.md"


def test_the_document_is_up_to_date() -> None:
    assert DOCUMENT.read_text() == reference(), "run: make docs"


def test_every_option_has_a_meaning() -> None:
    rows = [line.split(" | ") for line in reference().splitlines() if line.startswith("| `")]
    assert [row[0] for row in rows if len(row[2].strip(" |")) < 5] == []
