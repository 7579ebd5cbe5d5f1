"""Fixtures with clients for gRPC: one program per language and one server per side for the whole run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.interop.kit.grpc.client import GrpcClient
from tests.interop.kit.grpc.client_programs import PROGRAMS
from tests.interop.kit.grpc.outcomes import Outcomes
from tests.interop.kit.grpc.sides import APACHE, BEFORE_APACHE, KOUROU, GrpcSide, launch_side, wait_side

_PROGRAMS = {program.language: program for program in PROGRAMS}


@pytest.fixture(scope="session")
def grpc_sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, GrpcSide]]:
    """Our proxy and Apache's, each with a broker of its own; Apache's starts slowly, and ours meanwhile."""
    with ExitStack() as running:
        sides = {}
        for name in (APACHE, KOUROU):
            sides[name] = launch_side(name, tmp_path_factory.mktemp(f"grpc-{name}"))
            running.callback(sides[name].close)
        for side in sides.values():
            wait_side(side)
        yield sides


class GrpcClients:
    """The clients by language, each started when it is asked for."""

    def __init__(self, tmp_path_factory: pytest.TempPathFactory, running: ExitStack) -> None:
        self._folders = tmp_path_factory
        self._running = running
        self._clients: dict[str, GrpcClient] = {}

    def __getitem__(self, language: str) -> GrpcClient:
        """A client; the test is skipped where it cannot run."""
        if language not in self._clients:
            program = _PROGRAMS[language]
            if missing := program.missing():
                if os.environ.get("KOUROU_REQUIRE_INTEROP") == "1":
                    pytest.fail(f"KOUROU_REQUIRE_INTEROP=1, but the client of {language} {missing}")
                pytest.skip(f"the client of {language} {missing}")
            client = GrpcClient(program, self._folders.mktemp(f"grpc-{language}"))
            self._clients[language] = self._running.enter_context(client)
        return self._clients[language]


@pytest.fixture(scope="session")
def grpc_clients(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GrpcClients]:
    """The official clients."""
    with ExitStack() as running:
        yield GrpcClients(tmp_path_factory, running)


@pytest.fixture(scope="session")
def grpc_outcomes(
    request: pytest.FixtureRequest, grpc_sides: dict[str, GrpcSide], grpc_clients: GrpcClients
) -> Iterator[Outcomes]:
    """The outcomes of all scenarios that this run asks for; they start together."""
    yield from _running_outcomes("grpc_outcomes", request, grpc_sides, grpc_clients)


@pytest.fixture(scope="session")
def grpc_outcomes_before_apache(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, grpc_clients: GrpcClients
) -> Iterator[Outcomes]:
    """The same at our proxy before Apache's broker."""
    side = launch_side(BEFORE_APACHE, tmp_path_factory.mktemp("grpc-before-apache"))
    try:
        sides = {BEFORE_APACHE: wait_side(side)}
        yield from _running_outcomes("grpc_outcomes_before_apache", request, sides, grpc_clients)
    finally:
        side.close()


def _running_outcomes(
    fixture: str, request: pytest.FixtureRequest, sides: dict[str, GrpcSide], grpc_clients: GrpcClients
) -> Iterator[Outcomes]:
    wanted = [
        (parameters["scenario"], parameters["language"])
        for item in request.session.items
        if fixture in getattr(item, "fixturenames", ())
        for parameters in [item.callspec.params]  # type: ignore[attr-defined]
        if not _PROGRAMS[parameters["language"]].missing()
    ]
    clients = {language: grpc_clients[language] for _, language in wanted}
    outcomes = Outcomes(clients, sides)
    outcomes.start(wanted)
    yield outcomes
    outcomes.close()
