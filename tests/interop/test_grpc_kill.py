"""Broker and proxy are killed under official clients for gRPC and started again: the clients go on by
themselves, and nothing that a send has acknowledged is lost."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pytest

from tests.crash.rounds import NIGHTLY
from tests.interop.kit.grpc.fixtures import GrpcClients
from tests.interop.kit.grpc.scenarios import Scene, bodies, codes
from tests.interop.kit.grpc.sides import KOUROU, GrpcSide, launch_side, wait_side

pytestmark = pytest.mark.interop

LANGUAGES: Final = ("java", "go", "python", "node")
_KILLS: Final = 3 if NIGHTLY else 1
# Until the clients have connected again: Go's waits five seconds between attempts.
_RECOVERY_S: Final = 60
_RECEIVE_S: Final = 60


@pytest.fixture
def side(tmp_path: Path) -> Iterator[GrpcSide]:
    """A side of ours for this test alone."""
    launched = launch_side(KOUROU, tmp_path)
    try:
        yield wait_side(launched)
    finally:
        launched.close()


class Load:
    """A producer of a client that sends one message after the other, whatever becomes of them."""

    def __init__(self, scene: Scene, topic: str) -> None:
        self._scene = scene
        self._topic = topic
        self._producer = scene.producer(topic)
        self._enough = threading.Event()
        self.acknowledged: list[str] = []

    def run(self) -> None:
        """Send until `stop`."""
        number = 0
        while not self._enough.is_set():
            names = [f"{self._scene.client.language}-{number + offset}" for offset in range(5)]
            number += len(names)
            sent = self._scene.try_send(self._producer, self._topic, *names)
            self.acknowledged += [
                one["body"] for one, code in zip(sent, codes(sent), strict=True) if code == 20000
            ]

    def stop(self) -> None:
        """End the load after the sends that are under way."""
        self._enough.set()

    def wait_more(self, count: int = 20) -> None:
        """Wait until so many more messages are acknowledged."""
        goal = len(self.acknowledged) + count
        deadline = time.monotonic() + _RECOVERY_S
        while len(self.acknowledged) < goal:
            assert time.monotonic() < deadline, f"{self._scene.client.language} does not send again"
            time.sleep(0.05)


def test_clients_go_on_after_a_kill_and_nothing_acknowledged_is_lost(
    side: GrpcSide, grpc_clients: GrpcClients
) -> None:
    loads, consumers, scenes = {}, {}, {}
    for language in LANGUAGES:
        scene = scenes[language] = Scene(grpc_clients[language], side)
        topic = side.new_topic(f"kill-{language}")
        consumers[language] = scene.start("push", topic=topic, group=side.new_group())
        loads[language] = Load(scene, topic)
    with ThreadPoolExecutor(len(loads)) as threads:
        running = [threads.submit(load.run) for load in loads.values()]
        try:
            for _ in range(_KILLS):
                for load in loads.values():
                    load.wait_more()
                side.kill()
                side.start_again()
            for load in loads.values():
                load.wait_more()
        finally:
            for load in loads.values():
                load.stop()
        for one in running:
            one.result()
    for language, load in loads.items():
        wanted = set(load.acknowledged)
        deadline = time.monotonic() + _RECEIVE_S
        while missing := wanted - set(bodies(scenes[language].received(consumers[language], 0))):
            assert time.monotonic() < deadline, f"{language} lacks {len(missing)} of {len(wanted)}: {missing}"
            time.sleep(0.5)
