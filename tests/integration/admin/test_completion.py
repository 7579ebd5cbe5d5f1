"""What shells complete, tried in a real bash."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kourou.cli.admin.command import AdminCommand, MissingCommand
from kourou.cli.admin.registry import all_commands
from kourou.testing.cluster import cluster
from tests.e2e.client.kit.push_kit import make_topic
from tests.unit.admin.command_line import run_line

needs_bash = pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A folder with `mqadmin` in it."""
    folder = tmp_path / "bin"
    folder.mkdir()
    script = folder / "mqadmin"
    script.write_text(
        f"#!{sys.executable}\nimport sys\nfrom kourou.cli.mqadmin import main\nsys.exit(main())\n"
    )
    script.chmod(0o755)
    return folder


async def completed(program: Path, *lines: tuple[str, ...]) -> list[list[str]]:
    """What bash offers for the last word of each of these lines, all asked of one bash."""
    script = ["source <(mqadmin completion bash)"]
    for words in lines:
        script += [
            f"COMP_WORDS=(mqadmin {shlex.join(words)})",
            f"COMP_CWORD={len(words)}",
            "COMPREPLY=()",
            "_mqadmin",
            'echo "${COMPREPLY[@]}"',
        ]
    environment = {**os.environ, "PATH": f"{program}{os.pathsep}{os.environ['PATH']}"}
    done = await asyncio.to_thread(
        subprocess.run,
        ["bash", "-c", "\n".join(script)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0 and not done.stderr, done
    return [line.split() for line in done.stdout.splitlines()]


@needs_bash
async def test_commands_options_and_files(program: Path, tmp_path: Path) -> None:
    (tmp_path / "tools.yml").touch()
    expected = {
        ("topicSt",): ["topicStatus"],
        ("redr",): ["redrive"],
        ("help", "docto"): ["doctor"],
        ("redrive", "--dr"): ["--dry-run"],
        ("topicStatus", "--names"): ["--namesrvAddr"],
        ("completion", "z"): ["zsh"],
        ("doctor", "--watch", ""): [],
        ("addBroker", "-"): [],
        ("noSuchCommand", "-"): [],
        # No name server answers: nothing is offered, and nothing is said.
        ("topicStatus", "-n", "127.0.0.1", ":", "1", "-t", ""): [],
        ("topicList", "--acl", f"{tmp_path}/to"): [f"{tmp_path}/tools.yml"],
    }
    *offered, commands = await completed(program, *expected, ("",))
    assert dict(zip(expected, offered, strict=True)) == expected
    for command in all_commands():
        assert (command.name in commands) is isinstance(command, AdminCommand)
    assert "__complete" not in commands


@needs_bash
@pytest.mark.e2e
async def test_names_of_a_cluster(program: Path, tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        await make_topic(running, "Orders")
        await make_topic(running, "%RETRY%billing")
        host, port = running.namesrv_addr.split(":")
        # As bash takes the address apart.
        line = ("-n", host, ":", port)
        assert await completed(
            program,
            ("topicStatus", *line, "-t", "Ord"),
            ("consumerProgress", *line, "-g", "b"),
            ("deleteTopic", *line, "--clusterName", ""),
            ("brokerStatus", *line, "-b", ""),
        ) == [["Orders"], ["billing"], ["DefaultCluster"], ["broker-a"]]


async def test_a_name_server_that_is_silent_is_not_waited_for() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        began = time.monotonic()
        result = await run_line(None, "__complete", "topics", "--", "-n", f"127.0.0.1:{port}")
        assert (result.exit_code, result.stdout, result.stderr) == (0, "", "")
        assert time.monotonic() - began < 3


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
async def test_scripts_name_every_command(shell: str) -> None:
    result = await run_line(None, "completion", shell)
    assert result.exit_code == 0
    for command in all_commands():
        assert isinstance(command, MissingCommand) or command.name in result.stdout


@pytest.mark.parametrize("shell", ["zsh", "fish"])
async def test_other_shells_can_read_their_script(shell: str) -> None:
    found = shutil.which(shell)
    if found is None:
        pytest.skip(f"there is no {shell}")
    script = (await run_line(None, "completion", shell)).stdout
    done = await asyncio.to_thread(
        subprocess.run, [found, "-n", "/dev/stdin"], input=script, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("words", [(), ("tcsh",)])
async def test_bad_words(words: tuple[str, ...]) -> None:
    assert "give one of bash, zsh, fish" in (await run_line(None, "completion", *words)).problem
