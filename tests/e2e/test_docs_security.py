"""docs/security.md: its configurations are read, its commands and its program run, and do what it says."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from kourou.access.plain.accounts_file import AccountFiles
from kourou.access.quotas import LimitsFile
from kourou.client.core.credentials_sources import read_tools_file
from kourou.config import BrokerConfig, NamesrvConfig
from kourou.config.keys import settings_of
from kourou.config.properties import parse_properties
from kourou.config.remoting import TlsSettings
from kourou.testing.cluster import cluster
from tests.e2e.doc_programs import PROJECT
from tests.unit.admin.command_line import run_line

pytestmark = pytest.mark.e2e

_BLOCK = re.compile(r"^( *)```(\w+)\n(.*?)^\1```", re.S | re.M)
BLOCKS = [
    (language, dedent(text))
    for _, language, text in _BLOCK.findall((PROJECT / "docs" / "security.md").read_text())
]


def block(language: str, word: str = "") -> str:
    """The only block of a language that has a word."""
    [found] = [text for each, text in BLOCKS if each == language and word in text]
    return found


def settings_in(text: str, kind: type) -> dict[str, Any]:
    """The attributes that a properties file sets; KeyError for an unknown key."""
    known = settings_of(kind)
    return {known[entry.key][0]: known[entry.key][1].parse(entry.value) for entry in parse_properties(text)}


async def test_users_step_by_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = settings_in(block("properties", "# broker.conf"), BrokerConfig)
    assert settings["authentication_enabled"] is True
    words = shlex.split(block("sh", "export "))
    assert words[0] == "export"
    for name, value in (word.split("=") for word in words[1:]):
        monkeypatch.setenv(name, value)
    async with cluster(tmp_path, **settings) as running:
        for line in block("sh", "createUser").splitlines():
            command, *rest = shlex.split(line)
            assert command == "mqadmin"
            result = await run_line(running.namesrv_addr, *rest)
            assert result.exit_code == 0, (line, result.stderr)
        assert "Topic:Orders" in result.stdout and "Group:billing" in result.stdout
        assert await program(running.namesrv_addr) == block("text")


async def program(namesrv: str) -> str:
    """What the page's program prints."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        block("python"),
        env={**os.environ, "NAMESRV_ADDR": namesrv},
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await asyncio.wait_for(process.communicate(), 30)
    return out.decode()


def test_accounts_limits_and_keys_of_tools_are_read(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "plain_acl.yml").write_text(block("yaml", "globalWhite"))
    (tmp_path / "conf" / "limits.json").write_text(block("json"))
    (tmp_path / "tools.yml").write_text(block("yaml", "tools.yml"))
    assert AccountFiles.of_home(tmp_path).load().accounts
    assert LimitsFile(tmp_path / "conf" / "limits.json").read()["shop"].connections == 50
    keys = read_tools_file(tmp_path / "tools.yml")
    assert keys is not None and keys.access_key == "admin"


def test_keys_of_the_name_server_exist() -> None:
    settings = settings_in(block("properties", "# namesrv.properties"), NamesrvConfig)
    assert NamesrvConfig(**settings).authentication_enabled


@pytest.mark.parametrize("word", ["tls.server.mode=enforcing", "tls.server.clientCertificateUser"])
def test_keys_of_tls_exist(word: str) -> None:
    assert settings_in(block("properties", word), TlsSettings)
