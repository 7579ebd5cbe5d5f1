"""Outcomes: scenarios of clients at both sides, run side by side in one pool of threads.

What a test run asks for starts together, so that waits overlap; a test waits for its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, TypeAlias

from tests.interop.kit.grpc.client import GrpcClient
from tests.interop.kit.grpc.scenarios import SCENARIOS, Outcome, run
from tests.interop.kit.grpc.sides import GrpcSide

Wanted: TypeAlias = tuple[str, str]
"""A scenario and a language."""

_THREADS: Final = 10  # more would not be faster on two cores, and clients would miss their deadlines
_WAIT_S: Final = 240


class Outcomes:
    """The outcomes of scenarios; `start` begins them, `of` waits for one."""

    def __init__(self, clients: Mapping[str, GrpcClient], sides: Mapping[str, GrpcSide]) -> None:
        self._clients = clients
        self._sides = sides
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="grpc-scenario")
        self._running: dict[tuple[str, str, str], Future[Outcome]] = {}

    def start(self, wanted: Iterable[Wanted]) -> None:
        """Begin scenarios at all sides."""
        for scenario, language in wanted:
            for name, side in self._sides.items():
                self._running[scenario, language, name] = self._threads.submit(
                    run, SCENARIOS[scenario], self._clients[language], side
                )

    def of(self, scenario: str, language: str, side: str) -> Outcome:
        """The outcome of a scenario; a failure of it is raised."""
        return self._running[scenario, language, side].result(_WAIT_S)

    def close(self) -> None:
        """Drop what has not begun, and wait for the rest."""
        self._threads.shutdown(cancel_futures=True)
