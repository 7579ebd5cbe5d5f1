"""docs/configuration.md is generated from the keys."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

import pytest

from kourou.config.broker import BrokerConfig
from kourou.config.broker_settings import BrokerSettings
from kourou.config.keys import settings_of
from kourou.config.namesrv import NamesrvConfig
from kourou.config.proxy import ProxyConfig
from kourou.config.reference import reference
from kourou.config.remoting import RemotingServerSettings, TlsSettings
from kourou.config.store_settings import StoreSettings

DOCUMENT = Path(__file__).parents[3] / "docs" / "configuration.md"


def test_the_document_is_up_to_date() -> None:
    assert DOCUMENT.read_text() == reference(), "run: make docs"


@pytest.mark.parametrize("config_type", [BrokerConfig, NamesrvConfig, ProxyConfig])
def test_every_honoured_key_is_documented_in_a_sentence(config_type: type) -> None:
    keys = [key for _, key in settings_of(config_type).values() if not key.instead]
    assert [key.name for key in keys if not (key.section and key.doc.endswith("."))] == []


@pytest.mark.parametrize("config_type", [BrokerSettings, StoreSettings, RemotingServerSettings, TlsSettings])
def test_the_keys_of_a_section_stand_together(config_type: type) -> None:
    keys = [key for _, key in settings_of(config_type).values() if not key.instead]
    titles = [title for title, _ in groupby(key.section for key in keys)]
    assert len(titles) == len(set(titles))


def test_every_key_is_in_the_document() -> None:
    text = DOCUMENT.read_text()
    keys = {key.name for config in (BrokerConfig, NamesrvConfig, ProxyConfig) for key in config.known_keys()}
    assert [name for name in sorted(keys) if f"`{name}`" not in text] == []
