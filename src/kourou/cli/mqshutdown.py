"""`mqshutdown namesrv|broker|proxy|standalone`: stops this user's servers on this machine, by pid files."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from kourou.cli.apache_options import ApacheParser
from kourou.cli.problems import FAILURE, run_command
from kourou.cli.serving import run_folder
from kourou.pidfile import STARTING, RunningServer, running_servers

PROGRAM = "mqshutdown"
COMPONENTS = ("namesrv", "broker", "proxy", "standalone")
# A broker flushes its store before it ends.
WAIT_SECONDS = 30.0
_POLL_INTERVAL_SECONDS = 0.02


def shut_down(component: str, folder: Path, wait_seconds: float = WAIT_SECONDS) -> bool:
    """Stop every server of that kind and wait for it; False if not all stopped, or none was running."""
    servers = running_servers(folder, component)
    if not servers:
        print(f"No {_name(component)} running.")
        return False
    for server in servers:
        where = f" on {server.address}" if server.address != STARTING else ", still starting,"
        print(f"The {_name(component)}({server.pid}){where} is stopping...", flush=True)
        _terminate(server)
    deadline = time.monotonic() + wait_seconds
    return all([_wait_end(server, deadline, wait_seconds) for server in servers])


def _name(component: str) -> str:
    """The display name: most have Apache's command names."""
    return component if component == "standalone" else f"mq{component}"


def _terminate(server: RunningServer) -> None:
    try:
        os.kill(server.pid, signal.SIGTERM)
    except ProcessLookupError:
        pass  # it has just ended by itself


def _wait_end(server: RunningServer, deadline: float, wait_seconds: float) -> bool:
    name = f"{_name(server.component)}({server.pid})"
    if _wait_until(lambda: not server.is_running, deadline):
        print(f"The {name} has stopped.")
        return True
    print(f"{PROGRAM}: {name} is still running after {wait_seconds:g} s; see its log", file=sys.stderr)
    return False


def _wait_until(done: Callable[[], bool], deadline: float) -> bool:
    while not done():
        if time.monotonic() >= deadline:
            return False
        time.sleep(_POLL_INTERVAL_SECONDS)
    return True


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of `mqshutdown`; exits with the command's code."""
    parser = ApacheParser(
        PROGRAM, "Stop all servers of one kind that you run on this machine, found by their pid files."
    )
    parser.add_argument("component", choices=COMPONENTS, help="what to stop")
    component: str = parser.parse_args(arguments).component

    def action() -> None:
        if not shut_down(component, run_folder(os.environ)):
            sys.exit(FAILURE)

    run_command(PROGRAM, action)


if __name__ == "__main__":
    main()
