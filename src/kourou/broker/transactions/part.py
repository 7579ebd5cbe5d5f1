"""Transactions as a part of a broker: recovered, ended by producers, checked where none ends them."""

from __future__ import annotations

from collections.abc import Mapping

from kourou.broker.part import BrokerPart
from kourou.broker.settings import LiveConfig
from kourou.broker.transactions.end_transaction_processor import EndTransactionProcessor
from kourou.broker.transactions.transaction_check import TransactionCheck
from kourou.broker.transactions.transactions import Transactions
from kourou.transport.request import Processor
from kourou.transport.tasks import TaskOwner


class TransactionsPart(BrokerPart):
    """The first part that may store something: what a killed broker left undone comes right behind it."""

    def __init__(
        self,
        *,
        config: LiveConfig,
        transactions: Transactions,
        ends: EndTransactionProcessor,
        check: TransactionCheck,
    ) -> None:
        self._config = config
        self._transactions = transactions
        self._ends = ends
        self._check = check

    def processors(self) -> Mapping[int, Processor]:
        return self._ends.processors()

    def recover(self) -> None:
        self._transactions.recover(is_slave=self._config.current.is_slave)

    async def start(self, tasks: TaskOwner) -> None:
        self._check.start(tasks)
