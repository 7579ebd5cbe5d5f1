"""docs/configuration.md is what the code makes of its keys."""

from __future__ import annotations

from pathlib import Path

from kourou.config.broker import BrokerConfig
from kourou.config.meanings import AT_START, BROKER, NAMESRV, SHARED
from kourou.config.namesrv import NamesrvConfig
from kourou.config.reference import honoured_without_meaning, reference

DOCUMENT = Path(__file__).parents[3] / "docs" / "configuration.md"


def test_the_document_is_up_to_date() -> None:
    assert DOCUMENT.read_text() == reference(), "run: make docs"


def test_every_key_that_does_something_has_a_meaning() -> None:
    assert honoured_without_meaning() == []


def test_no_key_is_in_two_sections_and_each_text_is_a_sentence() -> None:
    for component in (BROKER, NAMESRV):
        names = [name for section in (*component.values(), *SHARED.values()) for name in section]
        assert len(names) == len(set(names))
    texts = [
        text for part in (BROKER, NAMESRV, SHARED) for section in part.values() for text in section.values()
    ]
    assert [text for text in texts if not text.endswith(".")] == []


def test_every_key_is_in_the_document() -> None:
    text = DOCUMENT.read_text()
    keys = {key.name for config in (BrokerConfig, NamesrvConfig) for key in config.known_keys()}
    assert [name for name in sorted(keys) if f"`{name}`" not in text] == []
    assert AT_START <= keys
