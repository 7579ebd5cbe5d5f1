"""What a shell completes for `kourou`: commands, options, topics, groups, contexts, words of mqadmin."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest
from click.shell_completion import ShellComplete

from kourou.cli.admin import completion
from kourou.cli.daily.completion import VARIABLE
from kourou.cli.main import app
from kourou.testing import LocalCluster
from tests.unit.cli.daily.command_line import run_kourou

PATIENT_MS = 20_000  # a busy machine may take longer than a user at a terminal waits


@pytest.fixture(scope="module")
def mq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A cluster with two topics and a group, which is the current context."""
    variables = {"XDG_CONFIG_HOME": str(tmp_path_factory.mktemp("config"))}
    with (
        mock.patch.dict(os.environ, variables),
        mock.patch.object(completion, "NAMES_TIMEOUT_MS", PATIENT_MS),
        LocalCluster() as running,
    ):
        os.environ.pop("NAMESRV_ADDR", None)
        for topic in ("Orders", "Payments", "%RETRY%billing"):
            running.create_topic(topic)
        run_kourou("context", "add", "here", "-n", running.namesrv)
        yield running


def completed(*words: str) -> list[str]:
    """What is offered for the last word of a line."""
    *before, last = words
    found = ShellComplete(app, {}, "kourou", VARIABLE).get_completions(before, last)
    return [item.value if item.type == "plain" else item.type for item in found]


def test_commands_options_and_names(mq: LocalCluster) -> None:
    for words, expected in {
        ("t",): ["topic", "tail", "trace"],
        ("topic", ""): ["list", "show", "create", "delete"],
        ("tail", "--fr"): ["--from"],
        ("send", "Orders", "--sh"): ["--sharding-key"],
        ("tail", ""): ["Orders", "Payments"],
        ("tail", "Pay"): ["Payments"],
        ("tail", "%RETRY"): ["%RETRY%billing"],
        ("send", "-n", mq.namesrv, "O"): ["Orders"],
        ("send", "-n", "127.0.0.1:1", "O"): [],
        ("topic", "show", "O"): ["Orders"],
        ("group", "show", ""): ["billing"],
        ("group", "reset", "billing", "-t", "P"): ["Payments"],
        ("tail", "--context", "h"): ["here"],
        ("context", "use", ""): ["here"],
        ("tail", "--acl", ""): ["file"],
        ("completion", ""): ["bash", "zsh", "fish"],
        ("admin", "topicSt"): ["topicStatus"],
        ("admin", "help", "docto"): ["doctor"],
        ("admin", "topicStatus", "-t", "Ord"): ["Orders"],
        ("admin", "topicStatus", "--names"): ["--namesrvAddr"],
        ("admin", "topicList", "--acl", "x"): ["file"],
        ("admin", "doctor", "--watch", ""): [],
        ("admin", "noSuchCommand", "-"): [],
        ("nonsense", "x"): [],
    }.items():
        assert completed(*words) == expected, words


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts_ask_kourou(shell: str) -> None:
    result = run_kourou("completion", shell)
    assert (result.exit_code, result.stderr) == (0, "") and f"{VARIABLE}={shell}_complete" in result.stdout
    program = shutil.which(shell)
    if program is not None:
        checked = subprocess.run(
            [program, "-n"], input=result.stdout, capture_output=True, text=True, timeout=30
        )
        assert (checked.returncode, checked.stderr) == (0, "")


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_a_real_bash_with_an_address_that_it_takes_apart(mq: LocalCluster, tmp_path: Path) -> None:
    program = tmp_path / "kourou"
    program.write_text(
        f"#!{sys.executable}\n"
        "from kourou.cli.admin import completion\n"
        "from kourou.cli.main import main\n"
        f"completion.NAMES_TIMEOUT_MS = {PATIENT_MS}\n"
        "main()\n"
    )
    program.chmod(0o755)
    host, port = mq.namesrv.split(":")
    words = ["kourou", "tail", "-n", host, ":", port, "Ord"]
    script = f"""eval "$(kourou completion bash)"
COMP_WORDS=({shlex.join(words)}) COMP_CWORD={len(words) - 1} COMPREPLY=()
_kourou_completion kourou
echo "${{COMPREPLY[@]}}"
"""
    environ = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    environ.pop("XDG_CONFIG_HOME")
    done = subprocess.run(["bash", "-c", script], env=environ, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("Orders\n", "")
