"""Fixtures of the interop suite: Apache's mqadmin and Java client, one JVM per version for the whole run."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

# Two whole outputs are compared there.
pytest.register_assert_rewrite(f"{__package__}.broker_pair")

from . import apache, artifacts, go_client  # noqa: E402
from .java_session import CLIENT_SETS, AdminSession, ClientSession  # noqa: E402
from .messaging_session import GO, Messaging, go_messaging, java_messaging  # noqa: E402


@pytest.fixture(scope="session", autouse=True)
def _artifacts() -> None:
    _skip_or_fail(artifacts.missing_tools())
    for set_name in artifacts.ARTIFACT_SETS:
        artifacts.class_path(set_name)


def _skip_or_fail(missing: str | None) -> None:
    if missing and os.environ.get("KOUROU_REQUIRE_INTEROP") == "1":
        pytest.fail(f"KOUROU_REQUIRE_INTEROP=1, but the suite {missing}")
    if missing:
        pytest.skip(missing)


@pytest.fixture(scope="session")
def session_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the JVMs that live as long as the run."""
    return tmp_path_factory.mktemp("java-sessions")


@pytest.fixture(scope="session")
def admins(session_dir: Path) -> Iterator[dict[str, AdminSession]]:
    """Apache's mqadmin by version."""
    sessions = {
        version: AdminSession(version, session_dir / f"admin-{version}") for version in apache.VERSIONS
    }
    yield sessions
    for session in sessions.values():
        session.close()


@pytest.fixture(scope="session")
def clients(session_dir: Path) -> Iterator[dict[str, ClientSession]]:
    """Apache's Java client by version."""
    sessions = {version: ClientSession(version, session_dir / f"client-{version}") for version in CLIENT_SETS}
    yield sessions
    for session in sessions.values():
        session.close()


@pytest.fixture(scope="session")
def java_messaging_clients(session_dir: Path) -> Iterator[dict[str, Messaging]]:
    """Apache's Java client by version, under remote control."""
    sessions = {
        version: java_messaging(version, session_dir / f"messaging-{version}") for version in CLIENT_SETS
    }
    yield sessions
    for session in sessions.values():
        session.close()


@pytest.fixture(scope="session")
def go_messaging_client(session_dir: Path) -> Iterator[Messaging]:
    """Apache's Go client, under remote control."""
    _skip_or_fail(go_client.missing_tools())
    with go_messaging(session_dir / GO) as session:
        yield session


@pytest.fixture(scope="session")
def messaging(request: pytest.FixtureRequest) -> Callable[[str], Messaging]:
    """Every client by its name, started when it is asked for."""

    def client(name: str) -> Messaging:
        if name == GO:
            go: Messaging = request.getfixturevalue("go_messaging_client")
            return go
        java: dict[str, Messaging] = request.getfixturevalue("java_messaging_clients")
        return java[name]

    return client
