"""FailoverStatus: what a member of a broker set reports about it, as keys of its runtime information.

    failoverMember         2                   its own number
    failoverMaster         1                   the master's; empty: there is none
    failoverEpoch          7                   how many masters there have been
    failoverInSync         1,2                 the members that have every acknowledged message
    failoverAlive          1,2,3
    failoverJoined         3                   how many have ever joined
    failoverMinInSync      2                   with fewer in sync, messages are rejected
    failoverEtcd           127.0.0.1:2379 3.5.16;127.0.0.1:2380 ? no answer within 1 s

Only members have these keys; Apache's brokers have none of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

_MEMBER: Final = "failoverMember"
_MASTER: Final = "failoverMaster"
_EPOCH: Final = "failoverEpoch"
_IN_SYNC: Final = "failoverInSync"
_ALIVE: Final = "failoverAlive"
_JOINED: Final = "failoverJoined"
_MIN_IN_SYNC: Final = "failoverMinInSync"
_ETCD: Final = "failoverEtcd"
_NO_VERSION: Final = "?"


@dataclass(frozen=True, slots=True)
class EtcdMember:
    """One member of etcd: its version, or why it did not answer."""

    address: str
    version: str = ""
    problem: str = ""

    def __str__(self) -> str:
        problem = self.problem.replace(";", ",")
        return " ".join(filter(None, (self.address, self.version or _NO_VERSION, problem)))

    @classmethod
    def parse(cls, text: str) -> Self:
        """From the text of one."""
        address, _, rest = text.partition(" ")
        version, _, problem = rest.partition(" ")
        return cls(address, version if version != _NO_VERSION else "", problem)


@dataclass(frozen=True, slots=True, kw_only=True)
class FailoverStatus:
    """A broker set as one of its members sees it."""

    member_id: int
    master: int | None
    epoch: int
    in_sync: tuple[int, ...]
    alive: tuple[int, ...]
    joined: int
    min_in_sync: int
    etcd: tuple[EtcdMember, ...] = ()
    """As they answered last; empty if that is not known yet."""

    @property
    def is_master(self) -> bool:
        """Whether this member is the master."""
        return self.member_id == self.master

    def to_keys(self) -> dict[str, str]:
        """The keys of the runtime information."""
        return {
            _MEMBER: str(self.member_id),
            _MASTER: "" if self.master is None else str(self.master),
            _EPOCH: str(self.epoch),
            _IN_SYNC: ",".join(map(str, self.in_sync)),
            _ALIVE: ",".join(map(str, self.alive)),
            _JOINED: str(self.joined),
            _MIN_IN_SYNC: str(self.min_in_sync),
            _ETCD: ";".join(map(str, self.etcd)),
        }

    @classmethod
    def of(cls, runtime: Mapping[str, str]) -> Self | None:
        """From a broker's runtime information; None if it is no member of a set."""
        try:
            return cls(
                member_id=int(runtime[_MEMBER]),
                master=int(runtime[_MASTER]) if runtime[_MASTER] else None,
                epoch=int(runtime[_EPOCH]),
                in_sync=_numbers(runtime[_IN_SYNC]),
                alive=_numbers(runtime[_ALIVE]),
                joined=int(runtime[_JOINED]),
                min_in_sync=int(runtime[_MIN_IN_SYNC]),
                etcd=tuple(EtcdMember.parse(each) for each in runtime[_ETCD].split(";") if each),
            )
        except (KeyError, ValueError):
            return None


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(each) for each in text.split(",") if each)
