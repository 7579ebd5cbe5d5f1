"""How 5.x brokers read: control of cold reads, read-ahead of the CommitLog, the engine of timers.

Kourou's brokers and those of 4.9 have none of it; their answer says so.
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
    """What keeps timer messages until they are due; the letters are those of the wire."""

    ROCKSDB_TIMELINE = "R"
    FILE_TIME_WHEEL = "F"


@dataclass(frozen=True, slots=True)
class ColdDataInfo:
    """Which groups of one broker read cold data, and how much they may. None: it keeps no such table."""

    address: str
    info: dict[str, Any] | None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class ReadModeChange:
    """What one broker said to another read mode."""

    address: str
    answer: str | None
    problem: str = ""


async def cold_data_infos(admin: Admin, addresses: Sequence[str]) -> list[ColdDataInfo]:
    """The cold reads of several brokers."""

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
    """How many bytes of cold data a group may read in a second."""
    body = format_properties({group: threshold}).encode("utf-8")
    return await on_each(
        addresses,
        lambda address: admin.call(address, RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG, body=body),
    )


async def remove_cold_read_limit(admin: Admin, addresses: Sequence[str], group: str) -> list[Outcome]:
    """A group has no limit of its own any more."""
    body = group.encode("utf-8")
    return await on_each(
        addresses,
        lambda address: admin.call(address, RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG, body=body),
    )


async def set_commit_log_read_mode(
    admin: Admin, addresses: Sequence[str], *, is_random: bool
) -> list[ReadModeChange]:
    """Whether the kernel reads ahead in the CommitLog, or leaves it as reads are at random places."""
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
    """Have timer messages kept by another engine (5.5)."""
    header = SwitchTimerEngineRequestHeader(engine_type=engine)
    return await on_each(
        addresses, lambda address: admin.call(address, RequestCode.SWITCH_TIMER_ENGINE, header)
    )
