"""ReplicaStatus: what a slave does, and why it does not follow its master. Pulls and readiness use it too."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class ReplicaState(enum.Enum):
    """What the slave does."""

    WAITING = "no master is known"
    CONNECTING = "connecting"
    FOLLOWING = "following"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class MasterAddress:
    """Where the master is: its HA port, and its port for requests if that is known."""

    ha: str
    remoting: str | None = None


@dataclass(slots=True)
class ReplicaStatus:
    """How it goes. Times are of the wall clock, in ms; 0: never."""

    state: ReplicaState = ReplicaState.WAITING
    master: MasterAddress | None = None
    problem: str | None = None
    last_read_ms: int = 0
    last_write_ms: int = 0

    @property
    def why_not_following(self) -> str | None:
        """Why the slave does not follow its master; None: it does."""
        if self.state is ReplicaState.FOLLOWING:
            return None
        return f"{self.state.value}: {self.problem}" if self.problem else self.state.value

    @property
    def why_stopped(self) -> str | None:
        """Why the slave will not follow its master until an operator has decided; None: it tries."""
        return self.problem if self.state is ReplicaState.STOPPED else None
