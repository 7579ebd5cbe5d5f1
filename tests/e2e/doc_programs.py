"""Programs and commands in documents, and how they are run: as a user runs them, each in its own process.

A ```python block is a program; in a block without a language, or of `sh`, each line that begins with a
command of this package is run. The ```text block after it is its output, where `…` stands for any text.
A program or command that runs until it is stopped gets a signal when it has printed that, or where the text
has `-- SIGTERM --`.
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import signal
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

PROJECT: Final = Path(__file__).parents[2]
NAMESRV: Final = "127.0.0.1:9876"
LIMIT_S: Final = 20.0
MODULES: Final = {
    "kourou": "kourou.cli.main",
    "mqadmin": "kourou.cli.mqadmin",
    "mqbroker": "kourou.cli.mqbroker",
    "mqshutdown": "kourou.cli.mqshutdown",
}
# Python 3.12 and later warn of a fork beside threads, which is what one program is about.
_WARNINGS: Final = "ignore:This process:DeprecationWarning"
_BLOCK: Final = re.compile(r"^```(\w*)\n(.*?)^```", re.S | re.M)
_FILE: Final = re.compile(r"# (\S+\.py)\n")
_SHELL: Final = ("", "sh", "bash")
_SIGNAL: Final = "-- SIGTERM --\n"
_ENDLESS_COMMANDS: Final = ("kourou quickstart consumer", "kourou tail", "kourou admin top")


@dataclass(frozen=True)
class Step:
    """One program or one command, and what it has to print."""

    page: str
    section: str
    line: int
    is_program: bool
    text: str
    output: tuple[str, ...] | None = None
    """None, of a command: the page does not show it."""
    after_signal: tuple[str, ...] = ()

    @property
    def where(self) -> str:
        """For messages."""
        return f"{self.page}:{self.line} ({self.section})"

    @property
    def runs_until_stopped(self) -> bool:
        """Whether it has to be ended by a signal."""
        if self.is_program:
            return ".run()" in self.text and ".stop()" not in self.text
        return self.text.startswith(_ENDLESS_COMMANDS)

    @property
    def file_name(self) -> str | None:
        """The name of the file that the block shows, where its first line has one."""
        found = _FILE.match(self.text)
        return found[1] if found else None

    def command(self, namesrv: str) -> list[str]:
        """The process to start, with the address of this name server."""
        text = self.text.replace(NAMESRV, namesrv)
        if self.is_program:
            return [sys.executable, "-u", "-c", text]
        program, *words = shlex.split(text, comments=True)
        return [sys.executable, "-u", "-m", MODULES[program], *words]


def steps(page: str) -> list[Step]:
    """The programs and commands of a page, in order."""
    found: list[Step] = []
    for section, line, kind, block in _blocks((PROJECT / page).read_text()):
        if kind == "python":
            found.append(Step(page, section, line, True, block, output=()))
        elif kind == "text":
            before, _, after = block.partition(_SIGNAL)
            printed = tuple(before.splitlines())
            found.append(replace(found.pop(), output=printed, after_signal=tuple(after.splitlines())))
        elif kind in _SHELL:
            lines = enumerate(block.splitlines(), line)
            commands = [(number, text) for number, text in lines if text.split(" ")[0] in MODULES]
            found += [Step(page, section, number, False, text) for number, text in commands]
    return found


def _blocks(text: str) -> Iterator[tuple[str, int, str, str]]:
    for block in _BLOCK.finditer(text):
        section = text[: block.start()].rpartition("\n## ")[2].partition("\n")[0]
        yield section, text.count("\n", 0, block.start()) + 2, block[1], block[2]


async def run_step(step: Step, namesrv: str, folder: Path, environ: Mapping[str, str]) -> list[str]:
    """Run it until it ends, or has printed all; it ends in order and writes nothing to stderr. Returns the
    lines that it printed."""
    process = await start_step(step, namesrv, folder, environ)
    printed: list[str] = []
    expected = None if step.output is None else step.output + step.after_signal
    try:
        async with asyncio.timeout(LIMIT_S):
            if step.runs_until_stopped:
                await read_lines(process, len(step.output or ()), printed)
                if process.returncode is None:
                    # Both are ends in order; a command is ended by Ctrl-C.
                    process.send_signal(signal.SIGTERM if step.is_program else signal.SIGINT)
            rest, errors = await process.communicate()
    except TimeoutError:
        raise AssertionError(f"it did not end; it printed {printed}") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    printed += rest.decode().splitlines()
    assert (process.returncode, errors) == (0, b""), f"it printed {printed}, and {errors.decode()}"
    assert expected is None or is_like(printed, expected), (printed, expected)
    return printed


async def start_step(
    step: Step, namesrv: str, folder: Path, environ: Mapping[str, str]
) -> asyncio.subprocess.Process:
    """Start its process, with the variables that the pages ask for."""
    return await asyncio.create_subprocess_exec(
        *step.command(namesrv),
        cwd=folder,
        env={**environ, "NAMESRV_ADDR": namesrv, "PYTHONWARNINGS": _WARNINGS},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def read_lines(process: asyncio.subprocess.Process, count: int, printed: list[str]) -> None:
    """Add lines to `printed` until it has so many, or the process has ended."""
    assert process.stdout is not None
    while len(printed) < count and (line := await process.stdout.readline()):
        printed.append(line.decode().rstrip("\n"))


def is_like(printed: list[str], expected: tuple[str, ...]) -> bool:
    """Whether the lines are those of the page."""
    return len(printed) == len(expected) and all(
        re.fullmatch(".*".join(map(re.escape, wanted.split("…"))), line)
        for line, wanted in zip(printed, expected, strict=True)
    )


def user_environ(home: Path) -> dict[str, str]:
    """The environment of a user with this home folder."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("XDG_", "ROCKETMQ_"))}
    return {**kept, "HOME": str(home)}
