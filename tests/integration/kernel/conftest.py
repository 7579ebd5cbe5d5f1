"""The kernel, compiled once for all its tests, and two brokers for the tests of a module."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from types import ModuleType

import pytest

from kourou.testing.faulty_files import FaultyFiles
from tests.integration.kernel.kernel_kit import build, build_problem, install
from tests.integration.kernel.twins import Twins, frame, send, started


@pytest.fixture(scope="session")
def kernel() -> ModuleType:
    """The compiled module; skipped where it cannot be compiled."""
    problem = build_problem()
    if problem is not None:
        if os.environ.get("KOUROU_REQUIRE_INTEROP") == "1":
            pytest.fail(f"KOUROU_REQUIRE_INTEROP=1, but {problem} is missing")
        pytest.skip(f"the kernel needs {problem}")
    return build()


@pytest.fixture(scope="module")
def twins(kernel: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Twins]:
    """Two brokers; at the end their queues and their indexes are the same, too."""
    with pytest.MonkeyPatch.context() as patch, asyncio.Runner() as runner:
        install(kernel, patch)
        stack = AsyncExitStack()
        twins = started(runner, stack, tmp_path_factory.mktemp("twins"))
        for topic in ("TopicTest", "Other"):  # the first one of a topic makes it
            twins.feed(frame(send({"b": topic})) + frame(send({"b": topic, "e": "1"})))
        yield twins
        twins.assert_same()
        runner.run(stack.aclose())


@pytest.fixture
def failing(
    kernel: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[tuple[Twins, list[FaultyFiles]]]:
    """Two brokers of one test, and the files of each, which can be made to fail."""
    install(kernel, monkeypatch)
    made: list[FaultyFiles] = []

    def faulty() -> FaultyFiles:
        made.append(FaultyFiles())
        return made[-1]

    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        yield started(runner, stack, tmp_path, files=faulty), made
        runner.run(stack.aclose())
