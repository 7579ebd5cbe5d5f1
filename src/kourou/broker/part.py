"""BrokerPart: one capability of a broker, from its start to its stop.

A broker is an ordered tuple of them. A part may rely on those before it: they have recovered and started when
it does, and stop after it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from kourou.config.broker import BrokerConfig
from kourou.transport.request import Processor
from kourou.transport.tasks import TaskOwner


class Handler(Protocol):
    """A set of request processors."""

    def processors(self) -> Mapping[int, Processor]:
        """The functions that handle requests, by request code."""
        ...


def processors_of(handlers: Iterable[Handler]) -> dict[int, Processor]:
    """The processors of all `handlers`; each code has one."""
    table: dict[int, Processor] = {}
    for handler in handlers:
        for code, processor in handler.processors().items():
            assert code not in table, f"request code {code} has two processors"
            table[code] = processor
    return table


class BrokerPart(Protocol):
    """What the controller calls, in this order; a part defines what it needs."""

    def processors(self) -> Mapping[int, Processor]:
        """What handles which request code; each code belongs to one part."""
        return {}

    def recover(self) -> None:
        """Bring the state back that the last run left. In a disk thread: it may wait, and nothing else uses
        the store meanwhile."""
        return

    async def start(self, tasks: TaskOwner) -> None:
        """Begin what runs until the broker stops, as tasks of `tasks`: the death of one stops the broker."""
        return

    def config_changed(self, old: BrokerConfig, new: BrokerConfig) -> None:
        """Keys have changed while the broker runs; `new` is in force."""
        return

    async def stop(self, timeout_ms: int) -> None:
        """End what was started and make the state durable; `timeout_ms` is for waiting on clients. Also
        called when the start failed, before or after this part's own."""
        return


class Periodic(NamedTuple):
    """Work that is done each so many seconds, as a task of that name."""

    seconds: float
    work: Callable[[], None]
    name: str


class HandlersPart(BrokerPart):
    """A part that answers requests, and does some work from time to time."""

    def __init__(self, *handlers: Handler, periodic: Sequence[Periodic] = ()) -> None:
        self._handlers = handlers
        self._periodic = periodic

    def processors(self) -> Mapping[int, Processor]:
        return processors_of(self._handlers)

    async def start(self, tasks: TaskOwner) -> None:
        for seconds, work, name in self._periodic:
            tasks.start(_every(seconds, work), name)


async def _every(seconds: float, work: Callable[[], None]) -> None:
    """Call `work` each `seconds`, until cancelled."""
    while True:
        await asyncio.sleep(seconds)
        work()
