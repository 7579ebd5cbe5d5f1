"""`-b` and `-c`: the brokers that a command applies to, and the result of each."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from kourou.admin.targets import ConfigUpdate, Outcome, brokers_of, master_addresses
from kourou.cli.admin.command import Call
from kourou.cli.admin.options import Option, one_of, value
from kourou.cli.admin.screen import Screen
from kourou.cli.problems import UsageError

BROKER: Final = value("b", "brokerAddr", "broker, as host:port or by its name")
CLUSTER: Final = value("c", "clusterName", "all masters of this cluster")
BROKER_OR_CLUSTER: Final[tuple[Option, ...]] = one_of(BROKER, CLUSTER)
"""Exactly one of them."""
EITHER: Final[tuple[Option, ...]] = (BROKER, CLUSTER)
"""One of them; the broker takes precedence."""


def check_either(call: Call) -> None:
    """UsageError if neither is given."""
    if "brokerAddr" not in call.args and "clusterName" not in call.args:
        raise UsageError("give a broker with -b host:port, or a cluster with -c name")


async def chosen_masters(call: Call) -> list[str]:
    """The address of the broker, or those of the cluster's masters."""
    check_either(call)
    args = call.args
    return await master_addresses(call.admin, broker=args.get("brokerAddr"), cluster=args.get("clusterName"))


async def chosen_brokers(call: Call) -> list[str]:
    """Like `chosen_masters`, with slaves, each after its master."""
    check_either(call)
    broker = call.args.get("brokerAddr")
    if broker is not None:
        return [await call.admin.broker_address(broker)]
    return [broker.address for broker in await brokers_of(call.admin, call.args.text("clusterName"))]


@dataclass(frozen=True, slots=True)
class Replica:
    """A broker and its master: itself for a master, None if not looked up."""

    address: str
    master: str | None

    @property
    def head(self) -> str:
        """The heading of its output."""
        if self.master is None:
            return f"============{self.address}============"
        if self.master == self.address:
            return f"============Master: {self.address}============"
        return f"============My Master: {self.master}=====Slave: {self.address}============"


async def chosen_replicas(call: Call) -> list[Replica]:
    """The broker, or all brokers of the cluster, each slave after its master."""
    check_either(call)
    broker = call.args.get("brokerAddr")
    if broker is not None:
        return [Replica(await call.admin.broker_address(broker), None)]
    brokers = await brokers_of(call.admin, call.args.text("clusterName"))
    masters = {broker.broker_name: broker.address for broker in brokers if broker.is_master}
    return [Replica(broker.address, masters.get(broker.broker_name, "NO_MASTER")) for broker in brokers]


def show_outcomes(outcomes: Iterable[Outcome], screen: Screen, line: Callable[[str], str]) -> None:
    """Print a line for each server that succeeded, and an error for each that did not."""
    for outcome in outcomes:
        if outcome.is_done:
            screen.line(line(outcome.address))
        else:
            screen.trouble(outcome.problem)


def show_update_notes(updates: Iterable[ConfigUpdate], screen: Screen) -> None:
    """A note for each key that is not in force yet, once for all servers that say the same."""
    for note in dict.fromkeys(update.note for update in updates if update.note):
        screen.note(note)
