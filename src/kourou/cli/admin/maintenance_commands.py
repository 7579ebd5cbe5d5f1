"""Operations on brokers: write permission, cleanup, flush offset."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from kourou.admin.brokers import (
    clean_expired_consume_queues,
    clean_unused_topics,
    delete_expired_commit_logs,
    reset_master_flush_offset,
)
from kourou.admin.namesrvs import WritePermChange, add_write_perm, wipe_write_perm
from kourou.admin.session import Admin
from kourou.admin.targets import Outcome, master_addresses
from kourou.cli.admin.command import AdminCommand, Call
from kourou.cli.admin.options import ParsedArgs, required, value
from kourou.cli.admin.screen import Screen

_BROKER_NAME: Final = required("b", "brokerName", "broker, by its name or as host:port")
_WHERE: Final = (
    value("b", "brokerAddr", "only this broker, as host:port or by its name"),
    value("c", "cluster", "only the masters of this cluster"),
)


# -- wipeWritePerm, addWritePerm ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _PermChanges:
    """The result of each name server."""

    broker_name: str
    namesrvs: list[WritePermChange]


async def _wipe(call: Call) -> _PermChanges:
    name = await call.admin.broker_name(call.args.text("brokerName"))
    return _PermChanges(name, await wipe_write_perm(call.admin, name))


async def _add(call: Call) -> _PermChanges:
    name = await call.admin.broker_name(call.args.text("brokerName"))
    return _PermChanges(name, await add_write_perm(call.admin, name))


def _show_perms(verb: str) -> Callable[[_PermChanges, Screen], None]:
    def show(changes: _PermChanges, screen: Screen) -> None:
        for change in changes.namesrvs:
            what = f"{verb} write perm of broker[{changes.broker_name}] in name server[{change.namesrv}]"
            if change.problem:
                screen.line(f"{what} Failed")
                screen.trouble(change.problem)
            else:
                screen.line(f"{what} OK, {change.topics}")

    return show


# -- cleaning up -------------------------------------------------------------------------------------

_Clean = Callable[[Admin, Sequence[str]], Awaitable[list[Outcome]]]


def _cleaning(clean: _Clean) -> Callable[[Call], Awaitable[list[Outcome]]]:
    async def ask(call: Call) -> list[Outcome]:
        addresses = await master_addresses(
            call.admin, broker=call.args.get("brokerAddr"), cluster=call.args.get("cluster")
        )
        return await clean(call.admin, addresses)

    return ask


def _show_cleaning(outcomes: list[Outcome], screen: Screen) -> None:
    screen.write("success" if all(outcome.is_done for outcome in outcomes) else "false")
    for outcome in outcomes:
        if outcome.problem:
            screen.trouble(outcome.problem)


def _where(args: ParsedArgs) -> str:
    if broker := args.get("brokerAddr"):
        return f"broker {broker}"
    return f"cluster {args.get('cluster')}" if "cluster" in args else "all clusters"


# -- resetMasterFlushOffset --------------------------------------------------------------------------


async def _reset_flush_offset(call: Call) -> int:
    phy_offset = call.args.number("offset")
    address = await call.admin.broker_address(call.args.text("brokerAddr"))
    await reset_master_flush_offset(call.admin, address, phy_offset)
    return phy_offset


def _show_flush_offset(phy_offset: int, screen: Screen) -> None:
    screen.line(f"reset master flush offset to {phy_offset} success")


MAINTENANCE_COMMANDS: Final = (
    AdminCommand(
        name="wipeWritePerm",
        about="Stop producers from writing to a broker, for example before a stop; consumers continue.",
        example="wipeWritePerm -n 127.0.0.1:9876 -b broker-a",
        options=(_BROKER_NAME,),
        ask=_wipe,
        show=_show_perms("wipe"),
        question=lambda args: f"Stop all writes to broker {args.text('brokerName')}?",
    ),
    AdminCommand(
        name="addWritePerm",
        about="Allow producers to write to a broker again.",
        example="addWritePerm -n 127.0.0.1:9876 -b broker-a",
        options=(_BROKER_NAME,),
        ask=_add,
        show=_show_perms("add"),
    ),
    AdminCommand(
        name="cleanExpiredCQ",
        about="Delete ConsumeQueue files whose messages have expired.",
        example="cleanExpiredCQ -n 127.0.0.1:9876 -c DefaultCluster",
        options=_WHERE,
        ask=_cleaning(clean_expired_consume_queues),
        show=_show_cleaning,
        question=lambda args: f"Delete ConsumeQueue files of expired messages on {_where(args)}?",
    ),
    AdminCommand(
        name="cleanUnusedTopic",
        about="Delete ConsumeQueue files of topics that no longer exist.",
        example="cleanUnusedTopic -n 127.0.0.1:9876 -c DefaultCluster",
        options=_WHERE,
        ask=_cleaning(clean_unused_topics),
        show=_show_cleaning,
        question=lambda args: f"Delete the files of topics that no longer exist on {_where(args)}?",
    ),
    AdminCommand(
        name="deleteExpiredCommitLog",
        about="Delete expired CommitLog files now instead of at the configured hour.",
        example="deleteExpiredCommitLog -n 127.0.0.1:9876 -c DefaultCluster",
        options=_WHERE,
        ask=_cleaning(delete_expired_commit_logs),
        show=_show_cleaning,
        question=lambda args: f"Delete expired messages on {_where(args)}?",
    ),
    AdminCommand(
        name="resetMasterFlushOffset",
        about="Set the flushed offset of the master at a slave.",
        example="resetMasterFlushOffset -n 127.0.0.1:9876 -b 127.0.0.1:10911 -o 0",
        options=(
            required("b", "brokerAddr", "slave, as host:port"),
            required("o", "offset", "byte offset in the CommitLog"),
        ),
        ask=_reset_flush_offset,
        show=_show_flush_offset,
        question=lambda args: (
            f"Set the flushed offset of the master to {args.text('offset')} at {args.text('brokerAddr')}?"
        ),
    ),
)
