"""Commands about reads of 5.x brokers: cold data, read-ahead, the timer engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from kourou.admin.reading import (
    TimerEngine,
    cold_data_infos,
    limit_cold_reads,
    remove_cold_read_limit,
    set_commit_log_read_mode,
    switch_timer_engine,
)
from kourou.admin.targets import Outcome
from kourou.cli.admin.command import AdminCommand, Call
from kourou.cli.admin.formatting import format_time
from kourou.cli.admin.java_json import pretty_json
from kourou.cli.admin.options import required
from kourou.cli.admin.screen import Screen
from kourou.cli.admin.target_options import (
    BROKER_OR_CLUSTER,
    EITHER,
    Replica,
    chosen_masters,
    chosen_replicas,
    show_outcomes,
)
from kourou.cli.problems import UsageError

_GROUP: Final = required("g", "consumerGroup", "consumer group")
_READ_MODES: Final = ("0", "1")


# -- cold data ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _ColdData:
    """The cold reads of one broker."""

    broker: Replica
    info: dict[str, Any] | None
    problem: str


async def _cold_data(call: Call) -> list[_ColdData]:
    replicas = await chosen_replicas(call)
    infos = await cold_data_infos(call.admin, [replica.address for replica in replicas])
    return [
        _ColdData(replica, info.info, info.problem) for replica, info in zip(replicas, infos, strict=True)
    ]


def _show_cold_data(brokers: list[_ColdData], screen: Screen) -> None:
    for broker in brokers:
        if broker.problem:
            screen.trouble(broker.problem)
            continue
        screen.head(f" {broker.broker.head}")
        if broker.info is None:
            screen.line(f"Broker[{broker.broker.address}] has no cold ctr table !")
        else:
            screen.line(pretty_json(_with_times(broker.info)))


def _with_times(info: dict[str, Any]) -> dict[str, Any]:
    """The table with times as text, at the end of each entry as Apache prints them."""
    table = info.get("runtimeTable")
    if not isinstance(table, dict):
        return info
    return {**info, "runtimeTable": {group: _entry(entry) for group, entry in table.items()}}


def _entry(entry: Any) -> Any:
    if not isinstance(entry, dict):
        return entry
    shown = dict(entry)
    for name in ("lastColdReadTime", "createTime"):
        moment = shown.pop(f"{name}Mills", None)
        if isinstance(moment, int):
            shown[f"{name}Format"] = format_time(moment)
    return shown


async def _limit_cold_reads(call: Call) -> list[Outcome]:
    group, threshold = call.args.text("consumerGroup"), call.args.number("threshold")
    return await limit_cold_reads(call.admin, await chosen_masters(call), group, str(threshold))


def _show_limit(outcomes: list[Outcome], screen: Screen) -> None:
    show_outcomes(outcomes, screen, lambda address: f"updateColdDataFlowCtrGroupConfig success, {address}")


async def _remove_limit(call: Call) -> list[Outcome]:
    return await remove_cold_read_limit(
        call.admin, await chosen_masters(call), call.args.text("consumerGroup")
    )


def _show_no_limit(outcomes: list[Outcome], screen: Screen) -> None:
    show_outcomes(outcomes, screen, lambda address: f"remove broker cold read threshold success, {address}")


# -- setCommitLogReadAheadMode -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _ReadMode:
    """The response of one broker to a change of its read mode."""

    broker: Replica
    answer: str | None
    problem: str


async def _read_mode(call: Call) -> list[_ReadMode]:
    mode = call.args.text("commitLogReadAheadMode")
    if mode not in _READ_MODES:
        raise UsageError("set the read mode error; 0 is default, 1 random read")
    replicas = await chosen_replicas(call)
    addresses = [replica.address for replica in replicas]
    changes = await set_commit_log_read_mode(call.admin, addresses, is_random=mode == "1")
    return [
        _ReadMode(replica, change.answer, change.problem)
        for replica, change in zip(replicas, changes, strict=True)
    ]


def _show_read_mode(brokers: list[_ReadMode], screen: Screen) -> None:
    for broker in brokers:
        if broker.problem:
            screen.trouble(broker.problem)
            continue
        screen.head(f" {broker.broker.head}")
        screen.line(f"commitLog set readAhead mode rstStr{broker.answer or 'null'}")


# -- switchTimerEngine -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _EngineSwitch:
    """The result of switching the engine."""

    engine: str
    brokers: list[Outcome]


async def _switch_engine(call: Call) -> _EngineSwitch:
    try:
        engine = TimerEngine(call.args.text("engineType"))
    except ValueError:
        raise UsageError("switchTimerEngine engineType must be R or F") from None
    outcomes = await switch_timer_engine(call.admin, await chosen_masters(call), engine)
    return _EngineSwitch(engine.name, outcomes)


def _show_engine(switch: _EngineSwitch, screen: Screen) -> None:
    show_outcomes(
        switch.brokers, screen, lambda address: f"switchTimerEngine to {switch.engine} success, {address}"
    )


BROKER_READING_COMMANDS: Final = (
    AdminCommand(
        name="getColdDataFlowCtrInfo",
        about="Show which groups read cold data (messages that are only on disk), and their limits.",
        example="getColdDataFlowCtrInfo -n 127.0.0.1:9876 -b 127.0.0.1:10911",
        options=EITHER,
        ask=_cold_data,
        show=_show_cold_data,
    ),
    AdminCommand(
        name="updateColdDataFlowCtrGroupConfig",
        about="Limit how many bytes of cold data a group may read per second.",
        example="updateColdDataFlowCtrGroupConfig -n 127.0.0.1:9876 -c DefaultCluster -g Payments -v 3145728",
        options=(*EITHER, _GROUP, required("v", "threshold", "bytes per second")),
        ask=_limit_cold_reads,
        show=_show_limit,
    ),
    AdminCommand(
        name="removeColdDataFlowCtrGroupConfig",
        about="Remove a group's limit on reading cold data.",
        example="removeColdDataFlowCtrGroupConfig -n 127.0.0.1:9876 -c DefaultCluster -g Payments",
        options=(*EITHER, _GROUP),
        ask=_remove_limit,
        show=_show_no_limit,
    ),
    AdminCommand(
        name="setCommitLogReadAheadMode",
        about="Set the kernel's read-ahead mode for CommitLog files.",
        example="setCommitLogReadAheadMode -n 127.0.0.1:9876 -b 127.0.0.1:10911 -m 1",
        options=(*EITHER, required("m", "commitLogReadAheadMode", "0: default, 1: random reads")),
        ask=_read_mode,
        show=_show_read_mode,
    ),
    AdminCommand(
        name="switchTimerEngine",
        about="Switch the engine that stores timer messages.",
        example="switchTimerEngine -n 127.0.0.1:9876 -b 127.0.0.1:10911 -e F",
        options=(
            *BROKER_OR_CLUSTER,
            required("e", "engineType", "F: time wheel in files, R: timeline in RocksDB"),
        ),
        ask=_switch_engine,
        show=_show_engine,
    ),
)
