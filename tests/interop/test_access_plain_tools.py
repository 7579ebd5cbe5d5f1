"""mqadmin and accounts of RocketMQ 4: Apache's tool and ours print the same, at either broker."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final
from unittest import mock

import pytest

from kourou.cli.admin.run import FORMAT_VARIABLE
from tests.interop.kit.access_accounts import ADMIN
from tests.interop.kit.access_servers import PLAIN
from tests.interop.kit.access_world import AccessCluster, AccessWorld, ours, theirs
from tests.interop.kit.java_session import AdminSession
from tests.interop.kit.mqadmin_output import without_moments
from tests.unit.admin.command_line import run_now

pytestmark = pytest.mark.interop

_ACCOUNT: Final = ("-a", "toolsuser")
_STEPS: Final[Sequence[tuple[str, ...]]] = (
    ("updateGlobalWhiteAddr", "-c", "DefaultCluster", "-g", "10.20.30.1,10.20.31.*"),
    ("updateAclConfig", "-b", "BROKER", *_ACCOUNT, "-s", "toolssecret", "-t", "A=PUB,B=PUB|SUB", "-i", "SUB"),
    ("updateAclConfig", "-c", "DefaultCluster", *_ACCOUNT, "-s", "toolssecret", "-g", "G=SUB", "-m", "true"),
    ("getAclConfig", "-b", "BROKER"),
    ("getAclConfig", "-c", "DefaultCluster"),
    ("clusterAclConfigVersion", "-b", "BROKER"),
    ("clusterAclConfigVersion", "-c", "DefaultCluster"),
    ("deleteAclConfig", "-b", "BROKER", *_ACCOUNT),
    ("updateGlobalWhiteAddr", "-b", "BROKER", "-g", "10.20.30.2"),
    ("getAclConfig", "-b", "BROKER"),
)
_FAILURES: Final[Sequence[tuple[tuple[str, ...], str]]] = (
    (("deleteAclConfig", "-b", "BROKER", "-a", "nobody-at-all"), "CODE: 210"),
    (("updateAclConfig", "-b", "BROKER", *_ACCOUNT, "-s", "toolssecret", "-t", "A"), "CODE: 209"),
    (("updateGlobalWhiteAddr", "-b", "BROKER", "-g", "10.0.0.1", "-p", "/none.yml"), "CODE: 211"),
)
# The tool of 4.9 prints an object's identity; ours never prints secrets. How often a file was written, and
# where it is, are the brokers' own.
_MASKS: Final = (
    (re.compile(r"(org\.apache\.rocketmq\.common\.)?PlainAccessConfig[@{].*"), "ACCOUNT"),
    (re.compile(r"(?<=secretKey) +: .*"), ": SECRET"),
    (re.compile(r"/\S*/conf/plain_acl\.yml +\d+"), "/conf/plain_acl.yml N"),
)
Run = Callable[[Sequence[str]], tuple[str, str]]
"""Runs a command line: its output, and its errors."""


@pytest.fixture(scope="module")
def apache_tool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AdminSession]:
    home = tmp_path_factory.mktemp("access-tools")
    _write_keys(home / "conf" / "tools.yml")
    with AdminSession(PLAIN, home) as session:
        yield session


@pytest.fixture(params=["apache", "ours"])
def tool(request: pytest.FixtureRequest, apache_tool: AdminSession, tmp_path: Path) -> Run:
    """A tool that signs as the administrator."""
    keys = tmp_path / "tools.yml"
    _write_keys(keys)

    def run_apache(words: Sequence[str]) -> tuple[str, str]:
        result = apache_tool.run(*words)
        return result.stdout, result.stderr

    def run_ours(words: Sequence[str]) -> tuple[str, str]:
        with mock.patch.dict(os.environ, {FORMAT_VARIABLE: PLAIN}):
            result = run_now([*words, "--acl", str(keys)])
        return result.stdout, result.stderr

    return run_apache if request.param == "apache" else run_ours


def _write_keys(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"accessKey: {ADMIN.access_key}\nsecretKey: {ADMIN.secret_key}\n")
    path.chmod(0o600)


def _outputs(tool: Run, cluster: AccessCluster) -> list[str]:
    outputs = []
    for step in _STEPS:
        stdout, stderr = tool(_words(step, cluster))
        assert stderr == "", step
        outputs.append(_masked(stdout, cluster))
    return outputs


def _words(step: Sequence[str], cluster: AccessCluster) -> list[str]:
    named = [cluster.address if word == "BROKER" else word for word in step]
    return [named[0], "-n", cluster.namesrv.address, *named[1:]]


def _masked(text: str, cluster: AccessCluster) -> str:
    text = text.replace(cluster.address, "BROKER")
    for pattern, mask in _MASKS:
        text = pattern.sub(mask, text)
    return without_moments(text)


def test_output_is_the_same_at_both_brokers_by_both_tools(
    access_world: AccessWorld, apache_tool: AdminSession, tool: Run
) -> None:
    there = access_world[theirs(PLAIN)]
    expected = _outputs(lambda words: _both_streams(apache_tool, words), there)
    assert expected[1].splitlines() == ["create or update plain access config to BROKER success.", "ACCOUNT"]
    assert "topicPerms : [A=PUB, B=PUB|SUB]" in expected[3]
    for cluster in (there, access_world[ours(PLAIN)]):
        assert _outputs(tool, cluster) == expected


def _both_streams(session: AdminSession, words: Sequence[str]) -> tuple[str, str]:
    result = session.run(*words)
    return result.stdout, result.stderr


def test_failures_have_the_codes_of_apache(access_world: AccessWorld, tool: Run) -> None:
    for cluster in (access_world[theirs(PLAIN)], access_world[ours(PLAIN)]):
        for step, code in _FAILURES:
            stdout, stderr = tool(_words(step, cluster))
            assert stdout == "" and code in stderr, (step, stderr)
