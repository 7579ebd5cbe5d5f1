"""docs/client-options.md and `help()` list the clients' options; docs/client.md what their results have."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import kourou
from kourou.client.core.settings import ClientSettings
from kourou.client.producer.producer_options import ProducerOptions
from kourou.client.pull.lite_pull_options import LitePullOptions
from kourou.client.push.consumer_options import ConsumerOptions
from kourou.client.reference import reference

DOCS = Path(__file__).parents[3] / "docs"
DOCUMENT = DOCS / "client-options.md"


def test_the_document_is_up_to_date() -> None:
    assert DOCUMENT.read_text() == reference(), "run: make docs"


def test_every_option_has_a_meaning() -> None:
    rows = [line.split(" | ") for line in reference().splitlines() if line.startswith("| `")]
    assert [row[0] for row in rows if len(row[2].strip(" |")) < 5] == []


@pytest.mark.parametrize("kind", ["", "Async"])
@pytest.mark.parametrize(
    ("client", "options"),
    [
        ("Producer", ProducerOptions),
        ("TransactionProducer", ProducerOptions),
        ("PushConsumer", ConsumerOptions),
        ("LitePullConsumer", LitePullOptions),
        ("PullConsumer", ClientSettings),
    ],
)
def test_help_of_a_client_lists_its_options_and_where_they_are_described(
    kind: str, client: str, options: type[Any]
) -> None:
    text = getattr(kourou, kind + client).__doc__.replace("\n    ", " ")
    assert "(docs/client-options.md describes each): " in text
    listed = text.partition("describes each): ")[2].rstrip(". ").split(", ")
    own = {*fields(options), *fields(ClientSettings)}
    assert {each.partition("=")[0] for each in listed} == {
        field.name for field in own if not field.name.startswith("_")
    }
    assert "heartbeat_interval_ms=30000" in listed
    if options is ProducerOptions:
        assert "compression=CompressionType.ZLIB" in listed


@pytest.mark.parametrize("name", ["MessageExt", "SendResult", "ConsumeContext"])
def test_the_page_lists_only_attributes_that_exist(name: str) -> None:
    rows = (
        (DOCS / "client.md").read_text().partition(f"\n| `{name}` |")[2].partition("\n\n")[0].splitlines()[2:]
    )
    listed = [word.strip("` ") for row in rows for word in row.split("|")[1].split(",")]
    assert len(listed) >= 4
    assert [word for word in listed if not hasattr(getattr(kourou, name), word)] == []
