"""ConsoleSettings: where the console listens, who may use it, and what it writes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kourou.config.host import LOOPBACK, is_loopback
from kourou.errors import ConfigError

DEFAULT_PORT: Final = 8_080
_MAX_PORT: Final = 65_535


@dataclass(frozen=True, kw_only=True)
class ConsoleSettings:
    """Settings of one console."""

    audit_file: Path
    """One JSON line is appended for each change."""
    host: str = LOOPBACK
    port: int = DEFAULT_PORT
    """0 picks a free one."""
    users_file: Path | None = None
    """Without one there is no login, which is allowed on a loopback address only."""
    accounts: bool = False
    """Whether people log in with accounts of the cluster, which then sign their requests."""
    port_option: str = "--port"
    """The option of the port, for messages."""
    allowed_hosts: tuple[str, ...] = ()
    """Host names under which browsers may reach the console, besides `localhost` and IP addresses."""

    def check(self) -> None:
        """ConfigError lists every problem with the settings."""
        problems = []
        if not 0 <= self.port <= _MAX_PORT:
            problems.append(
                f"{self.port_option} {self.port}: must be from 0 to {_MAX_PORT}; 0 picks a free one"
            )
        if self.accounts and self.users_file is not None:
            problems.append(
                f"--accounts: people log in with accounts of the cluster; the users of {self.users_file} "
                "cannot log in then: leave out --accounts or --users"
            )
        if self.users_file is None and not self.accounts and not is_loopback(self.host):
            problems.append(
                f"--host {self.host}: the console would be open to everyone who reaches this address; create "
                "a user with `kourou console user add NAME --role administrator`, let people log in with "
                f"accounts of the cluster (--accounts), or listen on {LOOPBACK}"
            )
        if problems:
            raise ConfigError(*problems)
