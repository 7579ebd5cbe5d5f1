"""Messages that are stored and not yet delivered to their topics: delayed messages and half messages."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final, Generic, Self, TypeVar

import msgspec

from kourou.admin.messages.delayed import BrokerDelays, recall_message, timer_message
from kourou.admin.messages.half_messages import BrokerHalfMessages
from kourou.admin.session import command_line
from kourou.console.api_errors import bad_input
from kourou.console.cluster_view import Reading
from kourou.console.endpoints import Call, Change, Done, Endpoint, NoBody, NoQuery, Plan, Read, TargetOutcome
from kourou.protocol.names import (
    RMQ_SYS_SCHEDULE_TOPIC,
    RMQ_SYS_TRANS_CHECK_MAX_TIME_TOPIC,
    RMQ_SYS_TRANS_HALF_TOPIC,
    TIMER_TOPIC,
)

BrokerT = TypeVar("BrokerT")


class Waiting(msgspec.Struct, Generic[BrokerT], frozen=True, kw_only=True):
    """What waits on each broker."""

    brokers: list[BrokerT]
    as_of: int
    problems: list[str]
    commands: list[str]

    @classmethod
    def of(cls, call: Call[NoQuery, NoBody], reading: Reading[list[BrokerT]], *topics: str) -> Self:
        """A reading, and the commands that print these topics."""
        return cls(
            brokers=reading.data,
            as_of=reading.as_of,
            problems=reading.problems,
            commands=[command_line(call.admin.namesrvs, "printMsg", "-t", topic) for topic in topics],
        )


async def _delays(call: Call[NoQuery, NoBody]) -> Waiting[BrokerDelays]:
    reading = await call.view.delays()
    return Waiting.of(call, reading, RMQ_SYS_SCHEDULE_TOPIC, TIMER_TOPIC)


async def _half_messages(call: Call[NoQuery, NoBody]) -> Waiting[BrokerHalfMessages]:
    reading = await call.view.half_messages()
    return Waiting.of(call, reading, RMQ_SYS_TRANS_HALF_TOPIC, RMQ_SYS_TRANS_CHECK_MAX_TIME_TOPIC)


async def _plan_recall(call: Call[NoQuery, NoBody]) -> Plan:
    offset = call.path["offset"]
    if not (offset.isascii() and offset.isdecimal() and len(offset) <= 18):
        raise bad_input("offset", f"{offset!r} is not an offset of {TIMER_TOPIC}")
    waiting = await timer_message(call.admin, call.path["broker"], int(offset))

    async def run() -> Done:
        await recall_message(call.admin, waiting)
        return Done([TargetOutcome(waiting.msg_id, True)])

    due = datetime.fromtimestamp(waiting.due / 1000, UTC).isoformat(timespec="seconds")
    return Plan(
        effects=[
            f"Recalls message {waiting.msg_id} of topic {waiting.topic}, due at {due}: it is not delivered"
        ],
        commands=[],
        run=run,
    )


ENDPOINTS: Final[tuple[Endpoint, ...]] = (
    Read(
        path="/delayed",
        summary="Delayed messages: delay levels, timer wheel, and the next due",
        handler=_delays,
        returns=Waiting[BrokerDelays],
    ),
    Change(
        path="/delayed/{broker}/{offset}/recall",
        summary="Recall a message of the timer wheel before its time",
        planner=_plan_recall,
    ),
    Read(
        path="/half-messages",
        summary="Transactions that have not ended, and those given up",
        handler=_half_messages,
        returns=Waiting[BrokerHalfMessages],
    ),
)
