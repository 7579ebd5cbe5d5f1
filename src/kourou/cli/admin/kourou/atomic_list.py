"""`mqadmin atomicList`: atomic publishes that are not over, or need attention."""

from __future__ import annotations

from typing import Final

from kourou.admin.atomic import BrokerAtomics, list_atomic
from kourou.cli.admin.command import AdminCommand, Call
from kourou.cli.admin.formatting import cut
from kourou.cli.admin.options import value
from kourou.cli.admin.screen import Screen

_LAYOUT: Final = "{:<16} {:<11} {:<40} {:<16} {:>9} {:>9} {}"
_HEAD: Final = ("#Broker", "#State", "#Id", "#Coordinator", "#Age", "#Messages", "#About")


async def _ask(call: Call) -> list[BrokerAtomics]:
    return await list_atomic(call.admin, call.args.get("clusterName"))


def _show(brokers: list[BrokerAtomics], screen: Screen) -> None:
    screen.head(_LAYOUT.format(*_HEAD).rstrip())
    for broker in brokers:
        if broker.problem:
            screen.trouble(f"{broker.broker_name} at {broker.address}: {broker.problem}")
        for entry in broker.publishes:
            about = [
                f"group {entry.producer_group}" if entry.producer_group else "",
                f"topics {','.join(entry.topics)}" if entry.topics else "",
                f"waits for {','.join(entry.waits_for)}" if entry.waits_for else "",
                entry.problem,
            ]
            screen.line(
                _LAYOUT.format(
                    cut(broker.broker_name, 16),
                    entry.state,
                    entry.atomic_id,
                    cut(entry.coordinator, 16),
                    f"{entry.age_ms / 1000:.1f}s",
                    entry.messages,
                    "; ".join(filter(None, about)),
                ).rstrip()
            )
    if not any(broker.publishes for broker in brokers):
        screen.line("no atomic publish is open, abandoned or incomplete")


ATOMIC_LIST: Final = AdminCommand(
    name="atomicList",
    about="List atomic publishes that are undecided, not published yet, abandoned or incomplete.",
    example="atomicList -n 127.0.0.1:9876",
    options=(value("c", "clusterName", "only the masters of this cluster"),),
    ask=_ask,
    show=_show,
    is_only_kourou=True,
)
