"""Clients of ours while the master of a broker set changes: no send fails, consumers miss nothing.

The time of a send is longer than the lease here; the default of 3 s is enough for a handover only.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from kourou import (
    AsyncLitePullConsumer,
    AsyncProducer,
    AsyncPushConsumer,
    AsyncTransactionProducer,
    Message,
    MessageExt,
    Producer,
    TransactionState,
)
from tests.failover.network import open_network
from tests.failover.set_kit import BrokerSet

pytestmark = [pytest.mark.integration, pytest.mark.slow]

_TOPIC = "Failover"
_SEND_MS = 30_000
_PERIOD_S = 0.01
# The end of a transaction may be lost with the master that it was sent to: the next one asks for it again.
_CHECKS = {"transactionTimeOut": 500, "transactionCheckInterval": 500}


class Load:
    """Producers of every kind that send until the end, and what became of their messages."""

    def __init__(self, namesrv: str) -> None:
        self._namesrv = namesrv
        self._is_over = False
        self._tasks: list[asyncio.Task[None]] = []
        self.sent: dict[str, list[str]] = {}
        self.failures: list[str] = []

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Producers that send until `stop`, and answer checks of transactions until the end."""
        options = {"namesrv": self._namesrv, "send_timeout_ms": _SEND_MS}
        async with (
            AsyncProducer("plain", **options) as plain,  # type: ignore[arg-type]
            AsyncProducer("ordered", **options) as ordered,  # type: ignore[arg-type]
            AsyncProducer("once", idempotent=True, **options) as once,  # type: ignore[arg-type]
            AsyncTransactionProducer("halves", check=_commit, **options) as halves,  # type: ignore[arg-type]
        ):

            async def transaction(message: Message) -> None:
                async with halves.transaction(message):
                    pass

            self._tasks = [
                asyncio.create_task(self._send("plain", plain.send)),
                asyncio.create_task(self._send("batch", lambda one: plain.send_many([one]))),
                asyncio.create_task(self._send("ordered", lambda one: ordered.send(one, sharding_key="k"))),
                asyncio.create_task(self._send("once", lambda one: once.send(one, sharding_key="k"))),
                asyncio.create_task(self._send("half", transaction)),
                asyncio.create_task(asyncio.to_thread(self._send_blocking)),
            ]
            try:
                yield
            finally:
                await self.stop()

    async def stop(self) -> None:
        """No more sends; on return all are done."""
        self._is_over = True
        await asyncio.gather(*self._tasks)

    async def _send(self, kind: str, send: Callable[[Message], Awaitable[object]]) -> None:
        sent = self.sent.setdefault(kind, [])
        while not self._is_over:
            body = f"{kind} {len(sent)}"
            try:
                await send(Message(_TOPIC, body.encode()))
            except Exception as error:
                self.failures.append(f"{body}: {error}")
            sent.append(body)
            await asyncio.sleep(_PERIOD_S)

    def _send_blocking(self) -> None:
        sent = self.sent.setdefault("sync", [])
        with Producer("blocking", namesrv=self._namesrv, send_timeout_ms=_SEND_MS) as producer:
            while not self._is_over:
                body = f"sync {len(sent)}"
                try:
                    producer.send(Message(_TOPIC, body.encode()))
                except Exception as error:
                    self.failures.append(f"{body}: {error}")
                sent.append(body)
                time.sleep(_PERIOD_S)

    @property
    def bodies(self) -> set[str]:
        return {body for bodies in self.sent.values() for body in bodies}

    async def goes_on(self, count: int = 20) -> None:
        """Wait until every producer has sent so many messages more."""
        before = {kind: len(sent) for kind, sent in self.sent.items()}
        await _until(
            lambda: all(len(self.sent[kind]) >= before[kind] + count for kind in before),
            lambda: f"sends go on: {before} -> { {kind: len(sent) for kind, sent in self.sent.items()} }",
        )


def _commit(_: MessageExt) -> TransactionState:
    return TransactionState.COMMIT


async def _until(condition: Callable[[], bool], what: Callable[[], str], timeout_s: float = 60.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, what()
        await asyncio.sleep(0.05)


@contextlib.asynccontextmanager
async def _consumers(namesrv: str) -> AsyncIterator[dict[str, list[str]]]:
    """A consumer of each kind; the bodies that each has received, in order."""
    received: dict[str, list[str]] = {"push": [], "orderly": [], "lite": []}
    push = AsyncPushConsumer("push", namesrv=namesrv, consume_from="first")
    orderly = AsyncPushConsumer("orderly", namesrv=namesrv, consume_from="first", orderly=True)

    async def poll(lite: AsyncLitePullConsumer) -> None:
        while True:
            received["lite"] += [each.body.decode() for each in await lite.poll(timeout_ms=500)]

    async with AsyncLitePullConsumer("lite", namesrv=namesrv, consume_from="first") as lite, push, orderly:
        await push.subscribe(_TOPIC, lambda message: received["push"].append(message.body.decode()))
        await orderly.subscribe(_TOPIC, lambda message: received["orderly"].append(message.body.decode()))
        await lite.subscribe(_TOPIC)
        polling = asyncio.create_task(poll(lite))
        try:
            yield received
        finally:
            polling.cancel()
            await asyncio.gather(polling, return_exceptions=True)


@pytest.mark.parametrize("fault", ["kill", "pause"])
async def test_no_send_fails_and_no_message_is_missed_when_the_master_changes(
    tmp_path: Path, fault: str
) -> None:
    async with BrokerSet(tmp_path / "set", open_network(), lease_s=2, keys=_CHECKS) as brokers:
        async with AsyncProducer("first", namesrv=brokers.namesrv_address) as producer:
            await producer.send(Message(_TOPIC, b"first"))
        load = Load(brokers.namesrv_address)
        async with _consumers(brokers.namesrv_address) as received:
            async with load.running():
                await load.goes_on()
                master = await brokers.wait_master()
                successor = next(each for each in brokers.members if each is not master)
                assert await brokers.hand_over(successor)
                await brokers.wait_master(but=master)
                await load.goes_on()
                assert load.failures == []

                await brokers.wait_in_sync()
                if fault == "kill":
                    successor.kill()
                else:
                    successor.pause()
                await load.goes_on()
                assert load.failures == []
                successor.go_on()
                await load.stop()
                for kind, bodies in received.items():
                    await _until(
                        lambda bodies=bodies: load.bodies <= set(bodies),  # type: ignore[misc]
                        lambda kind=kind, bodies=bodies: (  # type: ignore[misc]
                            f"{kind} misses {sorted(load.bodies - set(bodies))[:10]}"
                        ),
                    )
    once = [body for body in received["orderly"] if body.startswith("once")]
    assert list(dict.fromkeys(once)) == load.sent["once"], "in order"
