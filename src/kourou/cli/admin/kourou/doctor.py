"""`mqadmin doctor`: problems of a cluster, and how to fix them."""

from __future__ import annotations

import textwrap
from collections.abc import AsyncIterator
from typing import Final

from kourou.admin.doctor.doctor import DEFAULT_WATCH_S, diagnose
from kourou.admin.doctor.findings import DoctorReport, Finding, Severity
from kourou.cli.admin.command import AdminCommand, Call
from kourou.cli.admin.options import ParsedArgs, value
from kourou.cli.admin.screen import Screen
from kourou.cli.problems import UsageError
from kourou.errors import KourouError
from kourou.wording import counted

_WIDTH: Final = 110
_LABEL: Final = "{:<8} "


async def _doctor(call: Call) -> AsyncIterator[DoctorReport]:
    report = await diagnose(
        call.admin,
        call.args.get("clusterName"),
        watch_s=_watch_s(call.args),
        progress=call.screen.progress,
    )
    yield report
    if report.problems:
        raise KourouError(f"{counted(report.problems, 'problem')} found; each is shown with its fix")


def _watch_s(args: ParsedArgs) -> float:
    text = args.get("watch")
    try:
        watch_s = DEFAULT_WATCH_S if text is None else float(text)
    except ValueError:
        raise UsageError(f"--watch {text}: must be a number of seconds") from None
    if not 0 <= watch_s <= 3600:
        raise UsageError(f"--watch {text}: must be from 0 to 3600 seconds")
    return watch_s


def _show(report: DoctorReport, screen: Screen) -> None:
    screen.line(
        f"Checked {counted(report.brokers, 'broker')}, {counted(report.topics, 'topic')} and "
        f"{counted(report.groups, 'group')}."
    )
    for slave in report.slaves:
        screen.line(f"Slave {slave.broker_name} ({slave.address}, id {slave.broker_id}): {slave}.")
    for finding in report.findings:
        _show_finding(finding, screen)
    if report.not_checked:
        screen.line()
        screen.head("Not checked")
        for skipped in report.not_checked:
            where = f" of {skipped.where}" if skipped.where else ""
            screen.line(f"  {skipped.check}{where}: {skipped.reason}")
    screen.line()
    counts = {severity: 0 for severity in Severity}
    for finding in report.findings:
        counts[finding.severity] += 1
    screen.line(", ".join(counted(count, severity) for severity, count in counts.items()) + ".")


def _show_finding(finding: Finding, screen: Screen) -> None:
    screen.line()
    screen.head(f"{finding.severity.upper()} {finding.where}: {finding.check}")
    for label, text in (("found", finding.what), ("means", finding.meaning), ("cure", finding.cure)):
        for line in textwrap.wrap(
            text,
            _WIDTH,
            initial_indent="  " + _LABEL.format(label),
            subsequent_indent=" " * 11,
            break_long_words=False,
            break_on_hyphens=False,
        ):
            screen.line(line)
    for command in finding.commands:
        screen.line("  " + _LABEL.format("run") + command)  # on one line, so that it can be copied


DOCTOR: Final = AdminCommand(
    name="doctor",
    about="Check a whole cluster for problems, and print how to fix each one",
    example="doctor -n 127.0.0.1:9876",
    options=(
        value("c", "clusterName", "only this cluster (default: all)"),
        value("w", "watch", f"seconds between the two measurements (default: {DEFAULT_WATCH_S:g})"),
    ),
    stream=_doctor,
    show=_show,
    is_only_kourou=True,
)
