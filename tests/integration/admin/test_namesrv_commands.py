"""Commands about name servers, whole command lines against a cluster in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kourou.config import NamesrvConfig
from kourou.config.host import LOOPBACK
from kourou.embed import NameServer
from tests.integration.admin.dead_broker import DEAD
from tests.unit.admin.command_line import run_line


@pytest.fixture
async def servers(tmp_path: Path) -> AsyncIterator[tuple[str, str]]:
    """The addresses of two name servers."""
    async with (
        NameServer(NamesrvConfig(bind_address=LOOPBACK, listen_port=0)) as one,
        NameServer(NamesrvConfig(bind_address=LOOPBACK, listen_port=0)) as two,
    ):
        yield one.address, two.address


async def test_a_key_is_written_to_all_and_deleted_from_all(servers: tuple[str, str]) -> None:
    every = ";".join(servers)
    order = ("-s", "ORDER_TOPIC_CONFIG", "-k", "Orders")
    put = await run_line(every, "updateKvConfig", *order, "-v", "broker-a:4")
    assert put.stdout == "create or update kv config to namespace success.\n"
    for server in servers:
        got = await run_line(server, "updateOrderConf", "-t", "Orders", "-m", "get")
        assert "orderConf=[broker-a:4]" in got.stdout
    deleted = await run_line(every, "deleteKvConfig", *order, "--yes")
    assert deleted.stdout == "delete kv config from namespace success.\n"
    for server in servers:
        assert "CODE: 22" in (await run_line(server, "updateOrderConf", "-t", "Orders", "-m", "get")).problem


async def test_the_configuration_of_all(servers: tuple[str, str]) -> None:
    every = ";".join(servers)
    updated = await run_line(every, "updateNamesrvConfig", "-k", "orderMessageEnable", "-v", "true")
    assert updated.lines == [
        f"update name server config success![{', '.join(servers)}]",
        "orderMessageEnable : true",
    ]
    shown = await run_line(every, "getNamesrvConfig")
    heads = [line for line in shown.lines if line.startswith("====")]
    assert heads == [f"============{server}============" for server in servers]
    assert shown.lines.count(f"{'orderMessageEnable':<50}=  true") == 2
    as_json = (await run_line(every, "getNamesrvConfig", "--json")).json
    assert [entry["config"]["orderMessageEnable"] for entry in as_json] == ["true", "true"]


async def test_one_of_them_is_down(servers: tuple[str, str]) -> None:
    some = f"{servers[0]};{DEAD}"
    shown = await run_line(some, "getNamesrvConfig")
    assert shown.exit_code == 1 and shown.lines[0] == f"============{servers[0]}============"
    updated = await run_line(some, "updateNamesrvConfig", "-k", "orderMessageEnable", "-v", "true")
    assert updated.lines[0] == f"update name server config success![{servers[0]}]"
    put = await run_line(some, "updateKvConfig", "-s", "N", "-k", "K", "-v", "V")
    for result in (shown, updated, put):
        assert f"cannot connect to {DEAD}" in result.stderr and len(result.stderr.splitlines()) == 1


async def test_no_broker_responds() -> None:
    cases = [
        ("getNamesrvConfig",),
        ("updateNamesrvConfig", "-k", "orderMessageEnable", "-v", "true"),
        ("updateKvConfig", "-s", "N", "-k", "K", "-v", "V"),
        ("deleteKvConfig", "-s", "N", "-k", "K"),
        ("wipeWritePerm", "-b", "broker-a"),
    ]
    for words in cases:
        result = await run_line(DEAD, *words)
        assert f"cannot connect to {DEAD}" in result.problem and result.stdout == ""


async def test_a_key_that_no_name_server_knows(servers: tuple[str, str]) -> None:
    result = await run_line(servers[0], "updateNamesrvConfig", "-k", "noSuchKey", "-v", "1")
    assert "noSuchKey" in result.problem


async def test_missing_options_are_named() -> None:
    result = await run_line(DEAD, "updateKvConfig", "-s", "N")
    assert "Missing required options: k, v" in result.problem
