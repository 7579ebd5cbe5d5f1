"""Transactions as a part of a broker: recovered, ended by producers, checked where none ends them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kourou.broker.part import BrokerPart
from kourou.broker.transactions import end_transaction_processor
from kourou.broker.transactions.transaction_check import TransactionCheck
from kourou.broker.transactions.transactions import Transactions, recover
from kourou.transport.request import Processor
from kourou.transport.tasks import TaskOwner

if TYPE_CHECKING:
    from kourou.broker.services import BrokerServices


class TransactionsPart(BrokerPart):
    """The first part that may store something: what a killed broker left undone comes right behind it."""

    def __init__(self, services: BrokerServices, transactions: Transactions) -> None:
        self._services = services
        self._transactions = transactions

    def processors(self) -> Mapping[int, Processor]:
        return end_transaction_processor.processors(self._services, self._transactions)

    def recover(self) -> None:
        recover(self._services, self._transactions)

    async def start(self, tasks: TaskOwner) -> None:
        TransactionCheck(self._services, self._transactions).start()
