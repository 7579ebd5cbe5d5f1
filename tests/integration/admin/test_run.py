"""What all commands have in common: help, mistakes, questions, exit codes."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from kourou import __version__
from kourou.cli.admin.registry import all_commands
from kourou.testing.cluster import cluster
from tests.integration.admin.dead_broker import DEAD
from tests.integration.admin.on_terminal import run_on_terminal
from tests.unit.admin.command_line import run_line


@pytest.fixture(autouse=True)
def _no_name_server(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NAMESRV_ADDR", "ROCKETMQ_NAMESRV_DOMAIN"):
        monkeypatch.delenv(name, raising=False)


async def test_every_command_is_listed_and_has_a_help_with_an_example() -> None:
    listed = await run_line(None, "help", "--all")
    for command in all_commands():
        assert f"   {command.name} " in listed.stdout
        helped = await run_line(None, "help", command.name)
        assert helped.exit_code == 0 and command.name in helped.stdout
    assert (await run_line(None, "--version")).stdout == f"mqadmin {__version__}\n"


async def test_the_list_is_grouped_and_leaves_out_what_is_not_in_this_version() -> None:
    shown = (await run_line(None, "help")).lines
    titles = [line for line in shown[1:] if line.endswith(":") and not line.startswith(" ")]
    assert titles == [
        "Topics:",
        "Consumer groups:",
        "Messages:",
        "Clients:",
        "Brokers:",
        "Cluster and name servers:",
        "Access control:",
        "Exports:",
        "Only in Kourou:",
    ]
    assert shown[:4] == [
        "The most commonly used mqadmin commands are:",
        "",
        "Topics:",
        "   updateTopic                         "
        "Create a topic on a broker or on all masters of a cluster, or change it.",
    ]
    assert shown[-2:] == [
        "See 'mqadmin help <command>' for more information on a specific command.",
        "See 'mqadmin help --all' for 18 more that are not in this version.",
    ]
    assert not any("addBroker" in line for line in shown)
    everything = (await run_line(None, "help", "--all")).lines
    assert "Not in this version:" in everything and any("addBroker" in line for line in everything)


async def test_an_unknown_command_is_reported_with_the_nearest() -> None:
    result = await run_line(None, "topicStatu")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.problem == "mqadmin: The sub command topicStatu not exist; did you mean topicStatus?"


async def test_options_come_after_the_command() -> None:
    result = await run_line(None, "--acl", "tools.yml", "topicList")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.problem == "mqadmin: --acl comes after the command: mqadmin COMMAND --acl …"


async def test_names_match_in_any_case_and_old_names_too(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        for name in ("TOPICLIST", "topiclist"):
            assert "TBW102" in (await run_line(running.namesrv_addr, name)).stdout


async def test_without_a_name_server_the_error_lists_the_ways_to_give_one() -> None:
    problem = (await run_line(None, "topicList")).problem
    for way in ("-n host:9876", "--config FILE", "NAMESRV_ADDR", "rocketmq.namesrv.domain"):
        assert way in problem


async def test_a_broker_is_asked_by_its_address_without_any(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        result = await run_line(None, "brokerStatus", "-b", running.broker.address)
        assert result.exit_code == 0 and "bootTimestamp" in result.stdout
        assert (
            "no name server given"
            in (await run_line(None, "updateKvConfig", "-s", "a", "-k", "b", "-v", "c")).problem
        )


async def test_name_servers_come_from_a_file_and_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "client.properties"
    async with cluster(tmp_path) as running:
        file.write_text(f"rocketmq.namesrv.addr={running.namesrv_addr}\n")
        assert "TBW102" in (await run_line(None, "topicList", "--config", str(file))).stdout
        monkeypatch.setenv("NAMESRV_ADDR", running.namesrv_addr)
        assert "TBW102" in (await run_line(None, "topicList")).stdout
    missing = await run_line(None, "topicList", "--config", str(tmp_path / "nowhere"))
    assert missing.problem.endswith("no such file")


async def test_an_unreachable_cluster_is_one_line() -> None:
    problem = (await run_line(DEAD, "clusterList")).problem
    assert problem.startswith("mqadmin clusterList: no name server answers: cannot connect to")


async def test_wrong_values_of_common_options() -> None:
    cases = [
        (("--timeout", "x"), "--timeout x: must be a whole number"),
        (("--timeout", "0"), "--timeout 0: must be a number of milliseconds above 0"),
        (("--format", "3"), "--format 3: must be 4.9 or 5"),
        (("--acl", "nowhere.yml"), "--acl nowhere.yml: no such file"),
    ]
    for words, problem in cases:
        assert (await run_line(DEAD, "topicList", *words)).stderr.splitlines()[-1].endswith(problem)


async def test_what_would_destroy_asks_on_a_terminal_and_ctrl_d_is_no(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        await run_line(running.namesrv_addr, "updateTopic", "-b", "broker-a", "-t", "Orders")
        line = ["deleteTopic", "-n", running.namesrv_addr, "-c", "DefaultCluster", "-t", "Orders"]
        for typed, end in ((b"\x04", "nothing was done"), (b"n\n", "nothing was done"), (b"y\n", "success")):
            shown, exit_code = await asyncio.to_thread(
                run_on_terminal, line, lambda shown: "from cluster DefaultCluster? [y/N]" in shown, typed
            )
            assert end in shown and exit_code == (0 if end == "success" else 1)
            assert "Traceback" not in shown


async def test_a_disk_that_is_full_behind_the_output_is_one_line(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        words = [sys.executable, "-m", "kourou.cli.mqadmin", "topicList", "-n", running.namesrv_addr]

        def run() -> subprocess.CompletedProcess[str]:
            with open("/dev/full", "w") as full:
                return subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)

        ran = await asyncio.to_thread(run)
        assert ran.returncode == 1
        assert ran.stderr == "mqadmin topicList: [Errno 28] No space left on device\n"


async def test_bad_permissions_and_names_of_brokers_are_refused(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        result = await run_line(
            running.namesrv_addr, "updateTopic", "-c", "DefaultCluster", "-t", "A", "-p", "9"
        )
        assert "CODE: 16  DESC: topicPermission value: 9 is invalid" in result.stderr
        typo = await run_line(running.namesrv_addr, "wipeWritePerm", "-b", "brokr-a")
        assert typo.problem.endswith("broker brokr-a: no broker has that name; there are: broker-a")
        brokers = await run_line(running.namesrv_addr, "brokerConsumeStats", "-b", "broker-a", "--json")
        assert json.loads(brokers.stdout)["queues"] == []
