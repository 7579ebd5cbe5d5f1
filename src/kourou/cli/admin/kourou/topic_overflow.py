"""`mqadmin topicOverflow`: overflow policies of topics, their backlogs, and what was rejected and dropped."""

from __future__ import annotations

from typing import Final

from kourou.admin.overflow import BrokerOverflow, describe_limits, list_overflow
from kourou.cli.admin.command import AdminCommand, Call
from kourou.cli.admin.formatting import cut
from kourou.cli.admin.options import value
from kourou.cli.admin.screen import Screen

_LAYOUT: Final = "{:<16} {:<24} {:<20} {:>5} {:<16} {:>9} {}"
_HEAD: Final = ("#Broker", "#Topic", "#Policy", "#Used", "#Slowest group", "#Rejected", "#About")


async def _ask(call: Call) -> list[BrokerOverflow]:
    topic = call.args.get("topic")
    found = await list_overflow(call.admin, call.args.get("clusterName"), topic)
    if topic is not None and not any(broker.topics or broker.problem for broker in found):
        await call.admin.route(topic)  # ResponseError TOPIC_NOT_EXIST: there is no such topic
    return found


def _show(brokers: list[BrokerOverflow], screen: Screen) -> None:
    screen.head(_LAYOUT.format(*_HEAD).rstrip())
    for broker in brokers:
        if broker.problem:
            screen.trouble(f"{broker.broker_name} at {broker.address}: {broker.problem}")
        for state in broker.topics:
            about = [
                describe_limits(state),
                *(
                    f"{count.group}: {count.dropped} dropped, {count.dead_lettered} dead-lettered"
                    for count in state.groups
                ),
                state.problem,
            ]
            screen.line(
                _LAYOUT.format(
                    cut(broker.broker_name, 16),
                    cut(state.topic, 24),
                    state.policy or "none any more",
                    f"{state.share * 100:.0f}%",
                    cut(state.slowest_group or "-", 16),
                    state.rejected,
                    "; ".join(filter(None, about)),
                ).rstrip()
            )
    if not any(broker.topics for broker in brokers):
        topic = screen.args.get("topic")
        which = "no topic has an" if topic is None else f"topic {topic} has no"
        screen.line(f"{which} overflow policy (docs/overflow.md)")


TOPIC_OVERFLOW: Final = AdminCommand(
    name="topicOverflow",
    about="List topics with an overflow policy: backlog of the slowest group, rejected and dropped messages.",
    example="topicOverflow -n 127.0.0.1:9876 -t orders",
    options=(
        value("c", "clusterName", "only the masters of this cluster"),
        value("t", "topic", "only this topic"),
    ),
    ask=_ask,
    show=_show,
    is_only_kourou=True,
)
