"""Messages that are stored and not yet delivered to their topics: delayed messages and half messages."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

import msgspec

from kourou.admin.messages.delayed import BrokerDelays, recall_message, timer_message
from kourou.admin.messages.half_messages import BrokerHalfMessages
from kourou.admin.session import command_line
from kourou.console.api_errors import bad_input
from kourou.console.endpoints import Call, Change, Done, Endpoint, NoBody, NoQuery, Plan, Read, TargetOutcome
from kourou.protocol.names import (
    RMQ_SYS_SCHEDULE_TOPIC,
    RMQ_SYS_TRANS_CHECK_MAX_TIME_TOPIC,
    RMQ_SYS_TRANS_HALF_TOPIC,
    TIMER_TOPIC,
)


class Delays(msgspec.Struct, frozen=True, kw_only=True):
    """Delayed messages of all brokers."""

    brokers: list[BrokerDelays]
    as_of: int
    problems: list[str]
    commands: list[str]


async def _delays(call: Call[NoQuery, NoBody]) -> Delays:
    reading = await call.context.view.delays()
    return Delays(
        brokers=reading.data,
        as_of=reading.as_of,
        problems=reading.problems,
        commands=[
            command_line(call.admin.namesrvs, "printMsg", "-t", topic)
            for topic in (RMQ_SYS_SCHEDULE_TOPIC, TIMER_TOPIC)
        ],
    )


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


class HalfMessages(msgspec.Struct, frozen=True, kw_only=True):
    """Half messages of all brokers."""

    brokers: list[BrokerHalfMessages]
    as_of: int
    problems: list[str]
    commands: list[str]


async def _half_messages(call: Call[NoQuery, NoBody]) -> HalfMessages:
    reading = await call.context.view.half_messages()
    return HalfMessages(
        brokers=reading.data,
        as_of=reading.as_of,
        problems=reading.problems,
        commands=[
            command_line(call.admin.namesrvs, "printMsg", "-t", topic)
            for topic in (RMQ_SYS_TRANS_HALF_TOPIC, RMQ_SYS_TRANS_CHECK_MAX_TIME_TOPIC)
        ],
    )


ENDPOINTS: Final[tuple[Endpoint, ...]] = (
    Read(
        path="/delayed",
        summary="Delayed messages: delay levels, timer wheel, and the next due",
        handler=_delays,
        returns=Delays,
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
        returns=HalfMessages,
    ),
)
