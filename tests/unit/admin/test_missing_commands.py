"""Commands of parts that Kourou does not have say in one line which part that is."""

from __future__ import annotations

import pytest

from kourou.cli.admin.missing_commands import MISSING_COMMANDS
from kourou.cli.admin.registry import all_commands, find
from tests.golden.mqadmin import VERSIONS, recordings

from .command_line import run_line


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("getControllerConfig", "a controller of its own"),
        ("updateStaticTopic", "static topics"),
        ("rocksDBConfigToJson", "RocksDB"),
        ("addBroker", "the broker container"),
        ("dumpCompactionLog", "compaction"),
        ("getLiteTopicInfo", "lite topics"),
        ("exportPopRecord", "POP"),
    ],
)
async def test_the_part_is_named(name: str, part: str) -> None:
    result = await run_line(None, name, "-b", "127.0.0.1:10911")
    assert part in result.problem and "which this version of Kourou does not have" in result.problem
    assert result.stdout == ""


async def test_help_says_so_too() -> None:
    result = await run_line(None, "help", "addBroker")
    assert result.exit_code == 0 and "the broker container" in result.stdout


def test_each_name_means_one_command() -> None:
    names = [
        name
        for command in all_commands()
        for name in {command.name.lower(), *(alias.lower() for alias in command.aliases)}
    ]
    assert sorted(names) == sorted(set(names))
    assert all(find(command.name) is command for command in MISSING_COMMANDS)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_recorded_command_is_known(version: str) -> None:
    recorded = {recording.arguments[0] for recording in recordings(version).values()} - {
        "noSuchCommand",
        "help",
    }
    assert len(recorded) > 50
    assert sorted(name for name in recorded if find(name) is None) == []
