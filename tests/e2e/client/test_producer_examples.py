"""The examples in the docstrings of producers run, word for word."""

from __future__ import annotations

import inspect
import textwrap
from pathlib import Path
from typing import Any

import pytest

from kourou.client.core.transaction_state import TransactionState
from kourou.client.producer.producer import AsyncProducer
from kourou.client.transactions.transaction_producer import AsyncTransactionProducer
from kourou.protocol.message import Message, MessageExt
from kourou.testing.cluster import cluster
from tests.e2e.client.kit.producer_kit import all_stored

pytestmark = pytest.mark.e2e


def example_of(documented: object) -> str:
    """The indented lines of a docstring."""
    text = inspect.getdoc(documented) or ""
    lines = [line for line in text.splitlines() if line.startswith("    ") or not line]
    return textwrap.dedent("\n".join(lines)).strip()


async def run(code: str, namesrv: str, **names: Any) -> None:
    """Run lines of an async example."""
    code = code.replace("127.0.0.1:9876", namesrv).replace('namesrv="…"', f'namesrv="{namesrv}"')
    scope = dict(names)
    exec("async def example():\n" + textwrap.indent(code, "    "), scope)  # noqa: S102
    await scope["example"]()


async def test_the_example_of_a_producer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with cluster(tmp_path) as running:
        await run(
            example_of(AsyncProducer), running.namesrv_addr, AsyncProducer=AsyncProducer, Message=Message
        )
        (record,) = all_stored(running.broker)
        assert record.body == b"hello"
        assert capsys.readouterr().out.startswith(record.msg_id)


async def test_the_example_of_a_transaction_producer(tmp_path: Path) -> None:
    class Orders(set[str]):
        async def exists(self, key: str) -> bool:
            return key in self

        async def insert(self, key: str) -> None:
            self.add(key)

    orders = Orders()
    async with cluster(tmp_path) as running:
        await run(
            example_of(AsyncTransactionProducer),
            running.namesrv_addr,
            AsyncTransactionProducer=AsyncTransactionProducer,
            TransactionState=TransactionState,
            Message=Message,
            MessageExt=MessageExt,
            COMMIT=TransactionState.COMMIT,
            ROLLBACK=TransactionState.ROLLBACK,
            orders=orders,
            body=b"an order",
        )
        (record,) = all_stored(running.broker, "Orders")
        assert (record.body, orders) == (b"an order", {"order-1"})
