"""`mqadmin handover`: let another member of a broker set become its master, and wait until it is."""

from __future__ import annotations

from typing import Final

from kourou.admin.failover import DEFAULT_WAIT_S, Handover, hand_over
from kourou.cli.admin.command import AdminCommand, Call
from kourou.cli.admin.options import required, value
from kourou.cli.admin.screen import Screen
from kourou.cli.problems import UsageError


async def _hand_over(call: Call) -> Handover:
    args = call.args
    wait_s = args.number("wait", int(DEFAULT_WAIT_S))
    if wait_s < 1:
        raise UsageError(f"--wait {wait_s}: must be a number of seconds above 0")
    target = args.number("to") if "to" in args else None
    if target is not None and target < 1:
        raise UsageError(f"--to {target}: must be the number of a member, as getSyncStateSet shows it")
    call.screen.progress(f"handing over {args.text('brokerName')}")
    return await hand_over(call.admin, args.text("brokerName"), target, wait_s=wait_s)


def _show(done: Handover, screen: Screen) -> None:
    screen.line(
        f"{done.broker_name}: {done.old_master} handed over to {done.new_master} in {done.seconds:.2f} s"
    )
    instead = (
        f"; member {done.requested} was to take over, but did not"
        if done.requested != done.new_master.member_id
        else ""
    )
    screen.line(f"epoch {done.epoch}, in sync: {', '.join(map(str, done.in_sync))}{instead}")


HANDOVER: Final = AdminCommand(
    name="handover",
    about="Let another member of a broker set become its master, and wait until clients find it there",
    example="handover -n 127.0.0.1:9876 -b broker-a --to 2",
    options=(
        required("b", "brokerName", "broker set"),
        value("", "to", "number of the member, as getSyncStateSet shows it (default: the preferred one)"),
        value("", "wait", f"seconds to wait for the new master (default: {DEFAULT_WAIT_S:g})"),
    ),
    ask=_hand_over,
    show=_show,
    is_only_kourou=True,
)
