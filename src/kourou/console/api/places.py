"""The brokers that a change applies to, their names in outcomes, and mqadmin command lines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from kourou.admin.session import Admin, BrokerAddress, command_line
from kourou.admin.targets import Outcome
from kourou.console.api_errors import bad_input
from kourou.console.endpoints import Call, TargetOutcome
from kourou.wording import suggestion


async def chosen_masters(
    admin: Admin, clusters: Sequence[str], brokers: Sequence[str]
) -> list[BrokerAddress]:
    """The masters of these clusters and those with these names; all if none is given. ApiError 400 for a name
    that does not exist."""
    masters = await admin.masters()
    _check_names("clusters", clusters, {master.cluster for master in masters})
    _check_names("brokers", brokers, {master.broker_name for master in masters})
    chosen = [
        master
        for master in masters
        if not (clusters or brokers) or master.cluster in clusters or master.broker_name in brokers
    ]
    if not chosen:
        raise bad_input("brokers", "no master is registered at the name server; start one")
    return chosen


def _check_names(field: str, given: Iterable[str], known: set[str]) -> None:
    for name in given:
        if name not in known:
            hint = suggestion(name, known) or f"; there are: {', '.join(sorted(known)) or 'none'}"
            raise bad_input(field, f"no {field.removesuffix('s')} {name!r} has a master online{hint}")


def names_of(masters: Iterable[BrokerAddress]) -> str:
    """The names of brokers, for a sentence."""
    return ", ".join(sorted(master.broker_name for master in masters))


def named_outcomes(outcomes: Iterable[Outcome], masters: Iterable[BrokerAddress]) -> list[TargetOutcome]:
    """Outcomes with the names of brokers instead of their addresses."""
    names = {master.address: f"{master.broker_name} ({master.address})" for master in masters}
    return [TargetOutcome(names.get(one.address, one.address), one.is_done, one.problem) for one in outcomes]


def mqadmin(call: Call[Any, Any], command: str, *words: str) -> str:
    """A command line to copy and run."""
    return command_line(call.admin.namesrvs, command, *words)


async def place_options(admin: Admin, masters: Sequence[BrokerAddress]) -> list[tuple[str, str]]:
    """`-c cluster` for clusters of which all masters are in the list, `-b address` for the other brokers."""
    everywhere = await admin.masters()
    options = []
    rest = list(masters)
    for cluster in sorted({master.cluster for master in masters}):
        of_cluster = [master for master in everywhere if master.cluster == cluster]
        if all(master in masters for master in of_cluster):
            options.append(("-c", cluster))
            rest = [master for master in rest if master.cluster != cluster]
    return options + [("-b", master.address) for master in rest]
