"""`mqadmin atomicForget` and `producerForget`: give up what brokers would keep for ever."""

from __future__ import annotations

from typing import Final

from kourou.admin.forgetting import Forgotten, forget_participant, forget_producer
from kourou.cli.admin.command import AdminCommand, Call
from kourou.cli.admin.options import required, value
from kourou.cli.admin.screen import Screen
from kourou.wording import counted

_CLUSTER: Final = value("c", "clusterName", "only the masters of this cluster")


async def _forget_participant(call: Call) -> list[Forgotten]:
    args = call.args
    return await forget_participant(call.admin, args.text("brokerName"), args.get("clusterName"))


def _show_decisions(brokers: list[Forgotten], screen: Screen) -> None:
    name = screen.args.text("brokerName")
    _show(brokers, screen, "decision", f"no decision waits for broker {name}")


async def _forget_producer(call: Call) -> list[Forgotten]:
    args = call.args
    return await forget_producer(call.admin, args.text("producerName"), args.get("clusterName"))


def _show_names(brokers: list[Forgotten], screen: Screen) -> None:
    name = screen.args.text("producerName")
    _show(brokers, screen, "producer", f"no broker knows a producer with the name {name}")


def _show(brokers: list[Forgotten], screen: Screen, what: str, nothing: str) -> None:
    for broker in brokers:
        if broker.problem:
            screen.trouble(f"{broker.broker_name} at {broker.address}: {broker.problem}")
        elif broker.count:
            screen.line(f"{broker.broker_name} at {broker.address}: {counted(broker.count, what)} forgotten")
    if not any(broker.count or broker.problem for broker in brokers):
        screen.line(nothing)


ATOMIC_FORGET: Final = AdminCommand(
    name="atomicForget",
    about="Forget a broker that is gone for good and that decided atomic publishes wait for. Messages that "
    "were committed for it are never published: for them, all or none is given up.",
    example="atomicForget -n 127.0.0.1:9876 -b broker-z",
    options=(required("b", "brokerName", "name of the broker that is gone"), _CLUSTER),
    ask=_forget_participant,
    show=_show_decisions,
    question=lambda args: (
        f"Forget broker {args.text('brokerName')}, and never publish what was committed for it?"
    ),
    is_only_kourou=True,
)
PRODUCER_FORGET: Final = AdminCommand(
    name="producerForget",
    about="Forget a named producer, with its sequences in all queues: repeats of what it has sent are stored "
    "again, and its last sequence is -1.",
    example="producerForget -n 127.0.0.1:9876 -p loader-7",
    options=(
        required("p", "producerName", "name of the producer; of one in a namespace, namespace.name"),
        _CLUSTER,
    ),
    ask=_forget_producer,
    show=_show_names,
    question=lambda args: (
        f"Forget producer {args.text('producerName')}, so that repeats of what it has sent are stored again?"
    ),
    is_only_kourou=True,
)
