"""docs/commands.md: its sessions run as they stand, and print what they show; `…` stands for anything."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

# Loaded before a test replaces the default address, so that it keeps the real one.
import kourou.cli.daily.context  # noqa: F401
from kourou.testing import LocalCluster
from tests.unit.cli.daily.command_line import run_kourou

DOCUMENT = Path(__file__).parents[2] / "docs" / "commands.md"
NAMESRV = "127.0.0.1:9876"
LINE = re.compile(r"(?:printf '(.*)' \| )?kourou (.*)")


def sessions() -> list[list[tuple[str, list[str]]]]:
    """The command lines of each block, with what they print."""
    blocks = re.findall(r"^```console\n\$ (.*?)^```", DOCUMENT.read_text(), re.S | re.M)
    return [
        [(line, output) for line, *output in (part.splitlines() for part in block.split("\n$ "))]
        for block in blocks
    ]


@pytest.mark.parametrize("session", sessions(), ids=lambda session: session[0][0])
def test_a_session(
    session: list[tuple[str, list[str]]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    with LocalCluster() as mq:
        monkeypatch.setattr("kourou.cli.daily.cluster_command.DEFAULT_NAMESRV", mq.namesrv)
        for line, expected in session:
            piped, words = LINE.fullmatch(line).groups()  # type: ignore[union-attr]
            stdin = (piped or "").replace("\\n", "\n").encode()
            result = run_kourou(*shlex.split(words.replace(NAMESRV, mq.namesrv)), stdin=stdin)
            printed = (result.stdout + result.stderr).replace(mq.namesrv, NAMESRV).splitlines()
            assert len(printed) == len(expected), (line, printed)
            for shown, wanted in zip(printed, expected, strict=True):
                pattern = ".*".join(map(re.escape, wanted.split("…")))
                assert re.fullmatch(pattern, shown), (line, shown, wanted)


def test_there_are_some() -> None:
    assert [len(session) for session in sessions()] == [8, 6, 3]
