"""The programs that pip installs: each loads its module and runs it.

Loading takes a tenth of a second or more, and Ctrl-C may arrive meanwhile: it ends the process with 130 and
without a traceback. Only basic modules are imported here, so that this holds almost from the start.
"""

from __future__ import annotations

import os
import signal
from importlib import import_module
from typing import NoReturn


def kourou() -> None:
    _run("main")


def mqadmin() -> None:
    _run("mqadmin")


def mqbroker() -> None:
    _run("mqbroker")


def mqnamesrv() -> None:
    _run("mqnamesrv")


def mqproxy() -> None:
    _run("mqproxy")


def mqshutdown() -> None:
    _run("mqshutdown")


def _run(name: str) -> None:
    before = signal.getsignal(signal.SIGINT)
    # A shell without job control makes background programs ignore it.
    is_ignored = before is signal.SIG_IGN
    if not is_ignored:
        signal.signal(signal.SIGINT, _end)
    module = import_module(f"kourou.cli.{name}")
    if not is_ignored:
        signal.signal(signal.SIGINT, before)
    module.main()


def _end(number: int, frame: object) -> NoReturn:
    # At once: code that is being loaded may catch an exception, or be left half initialised.
    os._exit(130)
