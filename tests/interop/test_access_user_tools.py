"""mqadmin, users and policies of RocketMQ 5: Apache's tool and ours print the same, at either broker."""

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
from tests.interop.kit.access_servers import AUTH
from tests.interop.kit.access_world import AccessCluster, AccessWorld, ours, theirs
from tests.interop.kit.java_session import AdminSession
from tests.interop.kit.mqadmin_output import without_moments
from tests.unit.admin.command_line import run_now

pytestmark = pytest.mark.interop

_USER: Final = ("-u", "toolsuser")
_SUBJECT: Final = ("-s", "User:toolsuser")
_ALLOW: Final = ("-a", "Pub,Sub", "-d", "Allow")
_STEPS: Final[Sequence[tuple[str, ...]]] = (
    ("createUser", "-b", "BROKER", *_USER, "-p", "toolssecret"),
    ("createUser", "-c", "DefaultCluster", "-u", "toolssuper", "-p", "toolssecret", "-t", "Super"),
    ("updateUser", "-b", "BROKER", *_USER, "-p", "newsecret"),
    ("updateUser", "-c", "DefaultCluster", *_USER, "-t", "Super"),
    ("updateUser", "-b", "BROKER", *_USER, "-s", "disable"),
    ("getUser", "-b", "BROKER", *_USER),
    ("getUser", "-c", "DefaultCluster", *_USER),
    ("getUser", "-b", "BROKER", "-u", "missing"),
    ("listUser", "-b", "BROKER", "-f", "tools"),
    ("listUser", "-c", "DefaultCluster", "-f", "toolssuper"),
    ("listUser", "-b", "BROKER", "-f", "nothing"),
    ("createAcl", "-b", "BROKER", *_SUBJECT, "-r", "Topic:A,Topic:B*", *_ALLOW, "-i", "10.0.0.1,10.1.0.0/16"),
    ("createAcl", "-c", "DefaultCluster", *_SUBJECT, "-r", "Group:*", "-a", "Sub", "-d", "Deny"),
    ("updateAcl", "-b", "BROKER", *_SUBJECT, "-r", "Topic:A", "-a", "All", "-d", "Allow"),
    ("getAcl", "-b", "BROKER", *_SUBJECT),
    ("getAcl", "-c", "DefaultCluster", *_SUBJECT),
    ("listAcl", "-b", "BROKER", "-s", "tools"),
    ("listAcl", "-c", "DefaultCluster", "-s", "tools", "-r", "Topic:A"),
    ("copyUser", "-f", "BROKER", "-t", "BROKER", *_USER),
    ("copyAcl", "-f", "BROKER", "-t", "BROKER", *_SUBJECT),
    ("deleteAcl", "-b", "BROKER", *_SUBJECT, "-r", "Topic:A"),
    ("getAcl", "-b", "BROKER", *_SUBJECT),
    ("deleteAcl", "-c", "DefaultCluster", *_SUBJECT),
    ("deleteUser", "-b", "BROKER", *_USER),
    ("deleteUser", "-c", "DefaultCluster", "-u", "toolssuper"),
)
_FAILURES: Final[Sequence[tuple[tuple[str, ...], str]]] = (
    (("createUser", "-b", "BROKER", "-u", ADMIN.access_key, "-p", "x"), "The user is existed"),
    (("updateUser", "-b", "BROKER", "-u", "missing", "-p", "x"), "The user is not exist"),
    (("createAcl", "-b", "BROKER", "-s", "User:missing", "-r", "Topic:A", *_ALLOW), "is not exist."),
    (("createAcl", "-b", "BROKER", *_SUBJECT, "-r", "Thing:A", *_ALLOW), "The resource is null."),
)
# Apache's tool prints passwords, ours does not.
_PASSWORD: Final = re.compile(r"(?<= )(newsecret|toolssecret|\*+) +")
Run = Callable[[Sequence[str]], tuple[str, str]]
"""Runs a command line: its output, and its errors."""


@pytest.fixture(scope="module")
def apache_tool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    home = tmp_path_factory.mktemp("access-user-tools")
    _write_keys(home / "conf" / "tools.yml")
    with AdminSession(AUTH, home) as session:

        def run(words: Sequence[str]) -> tuple[str, str]:
            result = session.run(*words)
            return result.stdout, result.stderr

        yield run


@pytest.fixture
def our_tool(tmp_path: Path) -> Run:
    keys = tmp_path / "tools.yml"
    _write_keys(keys)

    def run(words: Sequence[str]) -> tuple[str, str]:
        with mock.patch.dict(os.environ, {FORMAT_VARIABLE: AUTH}):
            result = run_now([*words, "--acl", str(keys)])
        return result.stdout, result.stderr

    return run


def _write_keys(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"accessKey: {ADMIN.access_key}\nsecretKey: {ADMIN.secret_key}\n")
    path.chmod(0o600)


def _outputs(tool: Run, cluster: AccessCluster) -> list[str]:
    outputs = []
    for step in _STEPS:
        stdout, stderr = tool(_words(step, cluster))
        assert stderr == "", step
        text = _PASSWORD.sub("PASSWORD ", stdout.replace(cluster.address, "BROKER"))
        outputs.append(without_moments(f"{' '.join(step)}\n{text}"))
    return outputs


def _words(step: Sequence[str], cluster: AccessCluster) -> list[str]:
    named = [cluster.address if word == "BROKER" else word for word in step]
    return [named[0], "-n", cluster.names, *named[1:]]


def test_output_is_the_same_at_both_brokers_by_both_tools(
    access_world: AccessWorld, apache_tool: Run, our_tool: Run
) -> None:
    there, here = access_world[theirs(AUTH)], access_world[ours(AUTH)]
    expected = _outputs(apache_tool, there)
    assert "create user to BROKER success." in expected[0]
    assert "User:toolsuser" in expected[14]
    assert _outputs(apache_tool, here) == expected
    assert _outputs(our_tool, there) == expected
    assert _outputs(our_tool, here) == expected


def test_failures_have_the_words_of_apache(
    access_world: AccessWorld, apache_tool: Run, our_tool: Run
) -> None:
    for cluster in (access_world[theirs(AUTH)], access_world[ours(AUTH)]):
        for tool in (apache_tool, our_tool):
            for step, words in _FAILURES:
                stdout, stderr = tool(_words(step, cluster))
                assert "success" not in stdout and words in stderr, (step, stderr)
