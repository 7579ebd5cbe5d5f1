"""An examination in a process of its own.

Of a large cluster it takes thousands of responses: in the process of a broker they would take seconds of its
event loop, and memory that is not given back.
Input of the process: its order, pickled, with the credentials of the client, which neither command line nor
environment may show. Its input stays open; when it ends, so does the process: it does not outlive its parent.
Output: one JSON object.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import sys
import threading
from asyncio.subprocess import PIPE, Process
from dataclasses import dataclass
from typing import Final

import msgspec

from kourou.admin.doctor.doctor import DEFAULT_WATCH_S, diagnose
from kourou.admin.doctor.findings import DoctorReport
from kourou.admin.session import Admin, command_line
from kourou.client.core.refusals import response_error
from kourou.client.core.settings import ClientOptions
from kourou.errors import KourouError, ResponseError

LIMIT_S: Final = 120.0
"""Of an examination; one of 5,000 topics and 2,000 groups takes 9 s."""
# Without the current folder among the places of modules, which may be writable for others.
_COMMAND: Final = ("-P", "-m", "kourou.admin.doctor.process")


@dataclass(frozen=True, slots=True)
class _Order:
    options: ClientOptions
    watch_s: float


class _Refusal(msgspec.Struct, frozen=True):
    """A server's answer other than success."""

    code: int
    remark: str
    address: str


class _Answer(msgspec.Struct, frozen=True):
    report: DoctorReport | None = None
    refusal: _Refusal | None = None
    problem: str = ""


async def diagnose_apart(
    admin: Admin, *, watch_s: float = DEFAULT_WATCH_S, limit_s: float = LIMIT_S
) -> DoctorReport:
    """What `diagnose` reports, found by another process, which has ended on return. NoNameServerError if no
    name server responds, ResponseError if a server refuses what the examination cannot do without,
    KourouError if it fails otherwise or is not finished in time."""
    await admin.brokers()  # raises the error of a cluster that cannot be reached
    order = pickle.dumps(_Order(admin.options, watch_s))
    process = await asyncio.create_subprocess_exec(
        sys.executable, *_COMMAND, stdin=PIPE, stdout=PIPE, stderr=PIPE, start_new_session=True
    )
    try:
        async with asyncio.timeout(limit_s):
            printed, errors = await _converse(process, order)
    except TimeoutError:
        command = command_line(admin.namesrvs, "doctor")
        raise KourouError(
            f"doctor: not finished within {limit_s:g} s; a terminal has no such limit: {command}"
        ) from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    answer = _answer_of(printed, errors, process.returncode)
    if answer.refusal is not None:
        refusal = answer.refusal
        raise response_error(refusal.code, refusal.remark, refusal.address, admin.options.get("credentials"))
    if answer.report is None:
        raise KourouError(f"doctor: {answer.problem}")
    return answer.report


async def _converse(process: Process, order: bytes) -> tuple[bytes, bytes]:
    assert process.stdin is not None and process.stdout is not None and process.stderr is not None
    process.stdin.write(order)
    printed, errors = await asyncio.gather(process.stdout.read(), process.stderr.read())
    process.stdin.close()
    await process.wait()
    return printed, errors


def _answer_of(printed: bytes, errors: bytes, code: int | None) -> _Answer:
    try:
        return msgspec.json.decode(printed, type=_Answer)
    except msgspec.DecodeError:
        last = errors.decode(errors="replace").strip().rpartition("\n")[2]
        raise KourouError(f"doctor: its process ended with code {code}: {last or 'no output'}") from None


# -- the process -------------------------------------------------------------------------------------


def main() -> None:
    """Read an order, and print the answer to it."""
    order: _Order = pickle.load(sys.stdin.buffer)  # noqa: S301  # from the parent, which started us
    threading.Thread(target=_end_with_parent, name="parent", daemon=True).start()
    sys.stdout.buffer.write(msgspec.json.encode(asyncio.run(_answer(order))))


def _end_with_parent() -> None:
    sys.stdin.buffer.read()
    os._exit(1)


async def _answer(order: _Order) -> _Answer:
    try:
        async with Admin(**order.options) as admin:
            return _Answer(report=await diagnose(admin, watch_s=order.watch_s))
    except ResponseError as error:
        return _Answer(refusal=_Refusal(error.code, error.remark, error.address))
    except KourouError as error:
        return _Answer(problem=str(error) or type(error).__name__)


if __name__ == "__main__":
    main()
