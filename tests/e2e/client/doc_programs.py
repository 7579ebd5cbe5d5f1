"""Programs in documents, and how they are run: each as a user runs it, in a process of its own.

A ```python block is a program, the ```text block behind it what it prints, where `…` stands for anything.
A program that consumes until it is stopped gets SIGTERM when it has printed that, or where the text has
`-- SIGTERM --`.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).parents[3]
NAMESRV = "127.0.0.1:9876"
LIMIT_S = 60.0
# Python 3.12 and later warn of a fork beside threads, which is what one program is about.
_WARNINGS = "ignore:This process:DeprecationWarning"
_BLOCK = re.compile(r"^```(python|text)\n(.*?)^```", re.S | re.M)
_SIGNAL = "-- SIGTERM --\n"
_SUBSCRIBED = re.compile(r'(?:subscribe|queues)\("(\w+)"')


@dataclass(frozen=True)
class Program:
    """One program, and what it has to print."""

    code: str
    output: tuple[str, ...] = ()
    after_signal: tuple[str, ...] = ()

    @property
    def runs_until_stopped(self) -> bool:
        """Whether somebody has to end it."""
        return ".run()" in self.code and ".stop()" not in self.code


@dataclass(frozen=True)
class Section:
    """The programs under one heading: they run one after the other, against the same servers."""

    title: str
    programs: tuple[Program, ...]

    @property
    def topics(self) -> set[str]:
        """Those that have to be there before anything is sent to them."""
        return {topic for program in self.programs for topic in _SUBSCRIBED.findall(program.code)}


def sections(document: str) -> list[Section]:
    """The sections of a document that have programs."""
    parts = (PROJECT / document).read_text().split("\n## ")[1:]
    found = [Section(part.splitlines()[0], _programs(part)) for part in parts]
    return [section for section in found if section.programs]


def _programs(text: str) -> tuple[Program, ...]:
    programs: list[Program] = []
    for kind, block in _BLOCK.findall(text):
        if kind == "python":
            programs.append(Program(block))
        else:
            before, _, after = block.partition(_SIGNAL)
            program = Program(programs.pop().code, tuple(before.splitlines()), tuple(after.splitlines()))
            programs.append(program)
    return tuple(programs)


async def run_program(program: Program, namesrv: str, folder: Path) -> None:
    """Run it until it ends, or has printed all; it ends in order and complains of nothing."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-u", "-c", program.code.replace(NAMESRV, namesrv),
        cwd=folder,
        env={**os.environ, "NAMESRV_ADDR": namesrv, "HOME": str(folder), "PYTHONWARNINGS": _WARNINGS},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    printed: list[str] = []
    try:
        async with asyncio.timeout(LIMIT_S):
            if program.runs_until_stopped:
                await _until_printed(process, len(program.output), printed)
                if process.returncode is None:
                    process.send_signal(signal.SIGTERM)
            rest, errors = await process.communicate()
    except TimeoutError:
        raise AssertionError(f"it did not end; it printed {printed}") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    printed += rest.decode().splitlines()
    assert (process.returncode, errors) == (0, b""), f"it printed {printed}, and {errors.decode()}"
    expected = program.output + program.after_signal
    assert len(printed) == len(expected), (printed, expected)
    for line, wanted in zip(printed, expected, strict=True):
        assert re.fullmatch(".*".join(map(re.escape, wanted.split("…"))), line), (line, wanted)


async def _until_printed(process: asyncio.subprocess.Process, count: int, printed: list[str]) -> None:
    assert process.stdout is not None
    while len(printed) < count and (line := await process.stdout.readline()):
        printed.append(line.decode().rstrip("\n"))
