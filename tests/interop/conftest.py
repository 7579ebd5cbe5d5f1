"""Fixtures of the interop suite: Apache's mqadmin and Java client, one JVM per version for the whole run."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

# Two whole outputs are compared there.
pytest.register_assert_rewrite(f"{__package__}.broker_pair")

from tests.interop.kit import apache, artifacts, go_programs  # noqa: E402
from tests.interop.kit.access_world import RULES, AccessWorld, theirs  # noqa: E402
from tests.interop.kit.client_kit import ADAPTERS, LANES_OF_KITS, ClientKit, kits_at  # noqa: E402
from tests.interop.kit.grpc.fixtures import (  # noqa: E402, F401
    grpc_clients,
    grpc_outcomes,
    grpc_outcomes_before_apache,
    grpc_sides,
)
from tests.interop.kit.java_session import CLIENT_SETS, AdminSession, ClientSession  # noqa: E402
from tests.interop.kit.lanes import ALL_LANES, KOUROU, Lane, Lanes  # noqa: E402
from tests.interop.kit.messaging_session import GO, Messaging, go_messaging, java_messaging  # noqa: E402


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
    _skip_or_fail(go_programs.missing_tools())
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


@pytest.fixture(scope="session")
def shared_lanes(
    tmp_path_factory: pytest.TempPathFactory,
    messaging: Callable[[str], Messaging],
    admins: dict[str, AdminSession],
) -> Iterator[Lanes]:
    """Brokers and official clients for the whole run, each started when it is asked for."""
    with ExitStack() as servers:
        yield Lanes(tmp_path_factory.mktemp("lanes"), messaging, admins, servers)


@pytest.fixture(scope="session")
def access_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AccessWorld]:
    """Brokers with access control; Apache's, which start slowly, are under way."""
    with ExitStack() as servers:
        world = AccessWorld(tmp_path_factory.mktemp("access"), servers)
        world.launch(map(theirs, RULES))
        yield world


@pytest.fixture(scope="session")
def lanes(shared_lanes: Lanes) -> dict[str, Lane]:
    """Every official client at our broker, and in a nightly run at Apache's, by name."""
    return {name: shared_lanes[name] for name in ALL_LANES}


@pytest.fixture(params=list(LANES_OF_KITS))
def kit_broker(request: pytest.FixtureRequest) -> str:
    """The kind of the broker that a kit's clients are at."""
    name: str = request.param
    return name


@pytest.fixture(params=list(ADAPTERS))
def kit(request: pytest.FixtureRequest, shared_lanes: Lanes, kit_broker: str) -> ClientKit:
    """Our clients of one kind, async or plain, at a broker."""
    return ClientKit(ADAPTERS[request.param], shared_lanes[LANES_OF_KITS[kit_broker]])


@pytest.fixture
def kits(shared_lanes: Lanes, kit_broker: str) -> list[ClientKit]:
    """Our clients of the kinds that this run has at a broker, for scenarios that run side by side."""
    return kits_at(shared_lanes[LANES_OF_KITS[kit_broker]])


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The plain clients do nothing but call the async ones: at Apache's brokers they run by night."""
    for item in items:
        parameters = getattr(getattr(item, "callspec", None), "params", {})
        if parameters.get("kit") == "plain" and parameters["kit_broker"] != KOUROU:
            item.add_marker(pytest.mark.nightly)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """What fails where nothing is ours but the scenario is an expected failure (see lanes.py)."""
    report = yield
    if report.failed and item.get_closest_marker("reference") is not None:
        report.outcome = "skipped"
        report.wasxfail = "Apache's client at Apache's broker: a reference"
    return report
