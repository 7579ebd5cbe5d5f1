"""SetState: what etcd holds about one broker set. The transactions that change it: set_client.py.

Under `PREFIX/CLUSTER/BROKER/`, all values JSON:

    set          the set's id: stores remember it, so that a store of another set is refused
    lastMember   the number that the member that joined last got; members keep theirs
    epoch        how many reigns there have been: the number of the present or last one
    master       who reigns; under the master's lease
    inSync       the members that have every acknowledged message
    members/N    a member that is alive; under its own lease
    handover     the member that is to reign next

A reign begins with the one transaction that creates `master`. A master that has gone on without etcd creates
its key again, in the same epoch. Every later change by a master compares the revision at which its key was
created: a deposed master changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import msgspec

from kourou.errors import ProtocolError
from kourou.etcd import Changes, KeyValue, Snapshot

_T = TypeVar("_T")

NO_REVISION: Final = 0


class MasterValue(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The present master. `address` is for requests, `ha_address` for slaves."""

    member_id: int
    epoch: int
    address: str
    ha_address: str


class InSyncValue(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The in-sync set; `version` counts its changes. `phy_offset`: what lies below it in the log may have
    been acknowledged when the set was written, so that each of its members has it."""

    version: int
    members: tuple[int, ...]
    phy_offset: int = 0


class MemberValue(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A member that is alive. A lower `priority` is preferred as master. `log_end` is where its log ended
    when its process was started, `log_epoch` the epoch of the records there."""

    member_id: int
    address: str
    ha_address: str
    priority: int
    software: str = ""
    log_epoch: int = 0
    log_end: int = 0


class SetValue(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The identity of the set."""

    set_id: str


@dataclass(frozen=True, slots=True)
class SetKeys:
    """The names of the keys of one set."""

    prefix: str

    @classmethod
    def of(cls, root: str, cluster: str, broker_name: str) -> SetKeys:
        """The keys of this broker set below a root."""
        return cls(f"{root.rstrip('/')}/{cluster}/{broker_name}/")

    @property
    def set(self) -> str:
        """The identity of the set."""
        return f"{self.prefix}set"

    @property
    def last_member(self) -> str:
        """The number given last."""
        return f"{self.prefix}lastMember"

    @property
    def epoch(self) -> str:
        """The epoch counter."""
        return f"{self.prefix}epoch"

    @property
    def master(self) -> str:
        """The present master."""
        return f"{self.prefix}master"

    @property
    def in_sync(self) -> str:
        """The in-sync set."""
        return f"{self.prefix}inSync"

    @property
    def handover(self) -> str:
        """The member to reign next."""
        return f"{self.prefix}handover"

    @property
    def members(self) -> str:
        """The prefix of all members."""
        return f"{self.prefix}members/"

    def member(self, member_id: int) -> str:
        """One member."""
        return f"{self.members}{member_id}"


@dataclass(slots=True)
class SetState:
    """The keys of one set as they were seen last. `update` takes what a watch yields."""

    keys: SetKeys
    revision: int = NO_REVISION
    _values: dict[str, KeyValue] = field(default_factory=dict)

    def update(self, seen: Snapshot | Changes) -> None:
        """Take what a watch has yielded."""
        if isinstance(seen, Snapshot):
            self._values = {each.key: each for each in seen.keys}
        else:
            for each in seen.put:
                self._values[each.key] = each
            # Changes of several revisions may come together: a key may have been created again.
            for each in seen.deleted:
                known = self._values.get(each.key)
                if known is not None and known.modified_revision < each.modified_revision:
                    del self._values[each.key]
        self.revision = seen.revision

    @property
    def is_known(self) -> bool:
        """Whether etcd has answered at all."""
        return self.revision != NO_REVISION

    @property
    def set_id(self) -> str | None:
        """The identity of the set; None before its first member."""
        value = self._decoded(self.keys.set, SetValue)
        return value.set_id if value else None

    @property
    def epoch(self) -> int:
        """The number of the present or last reign; 0: there was none."""
        return self._decoded(self.keys.epoch, int) or 0

    @property
    def last_member(self) -> int:
        """The number that was given last; 0: none was."""
        return self._decoded(self.keys.last_member, int) or 0

    @property
    def master(self) -> MasterValue | None:
        """The present master."""
        return self._decoded(self.keys.master, MasterValue)

    @property
    def in_sync(self) -> InSyncValue | None:
        """The in-sync set; None before the first master."""
        return self._decoded(self.keys.in_sync, InSyncValue)

    @property
    def handover(self) -> int | None:
        """The member that is to reign next."""
        return self._decoded(self.keys.handover, int)

    @property
    def members(self) -> dict[int, MemberValue]:
        """The members that are alive, by their number."""
        found = (self._decoded(key, MemberValue) for key in self._values if key.startswith(self.keys.members))
        return {each.member_id: each for each in sorted(filter(None, found), key=lambda each: each.member_id)}

    def created_revision(self, key: str) -> int:
        """When this life of a key began; 0: it does not exist."""
        value = self._values.get(key)
        return value.created_revision if value else NO_REVISION

    def modified_revision(self, key: str) -> int:
        """When a key was changed last; 0: it does not exist."""
        value = self._values.get(key)
        return value.modified_revision if value else NO_REVISION

    def _decoded(self, key: str, kind: type[_T]) -> _T | None:
        found = self._values.get(key)
        return None if found is None else decode_value(found, kind)


def decode_value(found: KeyValue, kind: type[_T]) -> _T:
    """The value of a key; ProtocolError if it is not one of ours."""
    try:
        return msgspec.json.decode(found.value, type=kind)
    except msgspec.MsgspecError as error:
        raise ProtocolError(
            f"etcd: the value of {found.key} was not written by Kourou ({error}); "
            "choose another failoverEtcdPrefix, or remove the key"
        ) from error


def encode_value(value: Any) -> bytes:
    """The bytes of a value."""
    return msgspec.json.encode(value)


def sorted_members(members: Iterable[int]) -> tuple[int, ...]:
    """Members as they are written: each once, in order."""
    return tuple(sorted(set(members)))
