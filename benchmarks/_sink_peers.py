"""Brokers that a sink writes to: this checkout's, or those of several checkouts, each with a name server."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from kourou import Message, Producer

QUEUES = 8
TOPIC = "SinkBench"


@dataclass(frozen=True)
class SinkPeer:
    """A broker, and the numbers of exactly-once writes to it."""

    name: str
    namesrv: str
    pid: int
    writes: Iterator[int] = field(default_factory=itertools.count)


def start_peers(
    checkouts: Sequence[str], settings: Mapping[str, str], folder: Path, stack: ExitStack
) -> list[SinkPeer]:
    """Start the brokers of these checkouts, by the Python of their `.venv`; without any, that of this one."""
    pythons = {Path(one).name: f"{one}/.venv/bin/python" for one in checkouts} or {"Kourou": sys.executable}
    return [_start(name, python, settings, folder, stack) for name, python in pythons.items()]


def _start(name: str, python: str, settings: Mapping[str, str], folder: Path, stack: ExitStack) -> SinkPeer:
    from tests.interop.kit.kourou_broker import launch_kourou_broker
    from tests.interop.kit.kourou_namesrv import launch_kourou_namesrv

    namesrv = stack.enter_context(launch_kourou_namesrv(folder)).wait_ready().address
    broker = stack.enter_context(
        launch_kourou_broker(folder, [namesrv], settings, python=python)
    ).wait_ready()
    with Producer("bench", namesrv=namesrv, default_topic_queue_nums=QUEUES) as producer:
        producer.send(Message(TOPIC, b"makes the topic"))
    return SinkPeer(name, namesrv, broker.pid)
