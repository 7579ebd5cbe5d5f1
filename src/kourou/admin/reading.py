"""Read settings of 5.x brokers: cold-read limits, read-ahead of the CommitLog, the timer engine.

Kourou's brokers and those of 4.9 have none of these and respond with an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from kourou.admin.session import Admin
from kourou.admin.targets import Outcome, call_each, on_each
from kourou.config.properties import format_properties
from kourou.errors import KourouError
from kourou.protocol.bodies import decode_body
from kourou.protocol.codes import RequestCode
from kourou.protocol.headers.broker_admin import (
    SetCommitLogReadModeRequestHeader,
    SwitchTimerEngineRequestHeader,
)


class TimerEngine(StrEnum):
    """The storage of timer messages; the values are those of the wire."""

    ROCKSDB_TIMELINE = "R"
    FILE_TIME_WHEEL = "F"


@dataclass(frozen=True, slots=True)
class ColdDataInfo:
    """Groups of one broker that read cold data, and their limits. None: the broker has no such table."""

    address: str
    info: dict[str, Any] | None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class ReadModeChange:
    """The response of one broker to a change of its read mode."""

    address: str
    answer: str | None
    problem: str = ""


async def cold_data_infos(admin: Admin, addresses: Sequence[str]) -> list[ColdDataInfo]:
    """Cold reads on several brokers."""

    async def ask(address: str) -> dict[str, Any] | None:
        body = (await admin.call(address, RequestCode.GET_COLD_DATA_FLOW_CTR_INFO)).body
        return decode_body(body, dict[str, Any]) if body else None

    return [
        ColdDataInfo(address, None, str(answer))
        if isinstance(answer, KourouError)
        else ColdDataInfo(address, answer)
        for address, answer in await call_each(addresses, ask)
    ]


async def limit_cold_reads(
    admin: Admin, addresses: Sequence[str], group: str, threshold: str
) -> list[Outcome]:
    """Limit the bytes of cold data that a group may read per second."""
    body = format_properties({group: threshold}).encode("utf-8")
    return await on_each(
        addresses,
        lambda address: admin.call(address, RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG, body=body),
    )


async def remove_cold_read_limit(admin: Admin, addresses: Sequence[str], group: str) -> list[Outcome]:
    """Remove a group's own limit."""
    body = group.encode("utf-8")
    return await on_each(
        addresses,
        lambda address: admin.call(address, RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG, body=body),
    )


async def set_commit_log_read_mode(
    admin: Admin, addresses: Sequence[str], *, is_random: bool
) -> list[ReadModeChange]:
    """Set whether the kernel reads ahead in the CommitLog, or expects random reads."""
    header = SetCommitLogReadModeRequestHeader(read_ahead_mode="1" if is_random else "0")

    async def ask(address: str) -> str | None:
        return (await admin.call(address, RequestCode.SET_COMMITLOG_READ_MODE, header)).remark or None

    return [
        ReadModeChange(address, None, str(answer))
        if isinstance(answer, KourouError)
        else ReadModeChange(address, answer)
        for address, answer in await call_each(addresses, ask)
    ]


async def switch_timer_engine(admin: Admin, addresses: Sequence[str], engine: TimerEngine) -> list[Outcome]:
    """Switch the storage of timer messages (5.5)."""
    header = SwitchTimerEngineRequestHeader(engine_type=engine)
    return await on_each(
        addresses, lambda address: admin.call(address, RequestCode.SWITCH_TIMER_ENGINE, header)
    )
