"""mqadmin and accounts of RocketMQ 4: Apache's tool and ours print the same, at either broker."""

from __future__ import annotations

import os
import re
import time
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


@pytest.fixture
def our_tool(tmp_path: Path) -> Run:
    """It signs as the administrator."""
    keys = tmp_path / "tools.yml"
    _write_keys(keys)

    def run(words: Sequence[str]) -> tuple[str, str]:
        with mock.patch.dict(os.environ, {FORMAT_VARIABLE: PLAIN}):
            result = run_now([*words, "--acl", str(keys)])
        return result.stdout, result.stderr

    return run


def _running(session: AdminSession) -> Run:
    def run(words: Sequence[str]) -> tuple[str, str]:
        result = session.run(*words)
        return result.stdout, result.stderr

    return run


def _write_keys(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"accessKey: {ADMIN.access_key}\nsecretKey: {ADMIN.secret_key}\n")
    path.chmod(0o600)


def _outputs(tool: Run, cluster: AccessCluster) -> list[str]:
    _wait_registered(cluster)
    outputs = []
    for step in _STEPS:
        stdout, stderr = tool(_words(step, cluster))
        assert stderr == ""
        outputs.append(_masked(stdout, cluster))
    return outputs


def _wait_registered(cluster: AccessCluster) -> None:
    """Wait until the name server knows the cluster: a broker serves before."""
    deadline = time.monotonic() + 60
    while cluster.address not in run_now(["clusterList", "-n", cluster.namesrv.address]).stdout:
        assert time.monotonic() < deadline, "the broker is not registered"
        time.sleep(0.2)


def _words(step: Sequence[str], cluster: AccessCluster) -> list[str]:
    named = [cluster.address if word == "BROKER" else word for word in step]
    return [named[0], "-n", cluster.namesrv.address, *named[1:]]


def _masked(text: str, cluster: AccessCluster) -> str:
    text = text.replace(cluster.address, "BROKER")
    for pattern, mask in _MASKS:
        text = pattern.sub(mask, text)
    return without_moments(text)


@pytest.fixture(scope="module")
def expected(access_world: AccessWorld, apache_tool: AdminSession) -> list[str]:
    """What Apache's tool prints at Apache's broker."""
    return _outputs(_running(apache_tool), access_world[theirs(PLAIN)])


@pytest.fixture(params=["at Apache's", "at ours"])
def cluster(request: pytest.FixtureRequest, access_world: AccessWorld) -> AccessCluster:
    return access_world[theirs(PLAIN) if request.param == "at Apache's" else ours(PLAIN)]


def test_what_is_compared(expected: list[str]) -> None:
    assert expected[1].splitlines() == ["create or update plain access config to BROKER success.", "ACCOUNT"]
    assert "topicPerms : [A=PUB, B=PUB|SUB]" in expected[3]
    assert "toolsuser" not in expected[-1]


def test_our_tool_prints_the_same(expected: list[str], our_tool: Run, cluster: AccessCluster) -> None:
    assert _outputs(our_tool, cluster) == expected


def test_apaches_tool_prints_the_same_at_our_broker(
    expected: list[str], apache_tool: AdminSession, access_world: AccessWorld
) -> None:
    assert _outputs(_running(apache_tool), access_world[ours(PLAIN)]) == expected


@pytest.mark.parametrize(("step", "code"), _FAILURES)
def test_failures_have_the_codes_of_apache(
    our_tool: Run, apache_tool: AdminSession, cluster: AccessCluster, step: Sequence[str], code: str
) -> None:
    for tool in (our_tool, _running(apache_tool)):
        stdout, stderr = tool(_words(step, cluster))
        assert stdout == "" and code in stderr
