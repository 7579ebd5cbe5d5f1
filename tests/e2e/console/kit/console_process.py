"""`kourou console` in a process of its own, with a home folder, users and an audit log of the test's own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.e2e.server_process import ServerProcess

PASSWORDS: Final = {"ada": "correct horse", "ruth": "battery staple"}
ROLES: Final = {"ada": "administrator", "ruth": "reader"}
_LINE: Final = "console: "


@dataclass(frozen=True)
class ConsoleProcess:
    """A running console."""

    url: str  # without the slash at the end
    server: ServerProcess
    audit_log: Path

    def audit(self) -> list[dict[str, Any]]:
        """The audit log, oldest line first."""
        lines = self.audit_log.read_text("utf-8").splitlines() if self.audit_log.exists() else []
        return [json.loads(line) for line in lines]


@contextmanager
def run_console(
    namesrv: str, folder: Path, *, users: Path | None = None, accounts: bool = False
) -> Iterator[ConsoleProcess]:
    """Run a console on a free port of 127.0.0.1; with `accounts` those of the cluster log in."""
    audit_log = folder / "audit.log"
    arguments = ["console", "-n", namesrv, "--port", "0", "--audit-log", str(audit_log), "--log-file", "-"]
    arguments += ["--users", str(users)] if users else []
    arguments += ["--accounts"] if accounts else []
    server = ServerProcess("kourou.cli.main", arguments, _environ(folder), folder / "process")
    try:
        server.wait_output(_LINE)
        line = next(line for line in server.output.splitlines() if line.startswith(_LINE))
        yield ConsoleProcess(line.removeprefix(_LINE).rstrip("/"), server, audit_log)
        assert server.stop() == 0, server.errors
    finally:
        if server.process.poll() is None:
            server.kill()


def add_users(folder: Path) -> Path:
    """A file with an administrator and a reader."""
    path = folder / "users"
    for name, role in ROLES.items():
        words = ["console", "user", "add", name, "--role", role, "--password-stdin", "--users", str(path)]
        subprocess.run(
            [sys.executable, "-m", "kourou.cli.main", *words],
            input=PASSWORDS[name] + "\n",
            text=True,
            check=True,
            capture_output=True,
            env=_environ(folder),
        )
    return path


def _environ(folder: Path) -> Mapping[str, str]:
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("ROCKETMQ_", "NAMESRV_"))}
    home = folder / "home"
    home.mkdir(exist_ok=True)
    return {**kept, "HOME": str(home), "XDG_CONFIG_HOME": str(home / "config")}
