"""The state of a broker set as etcd would have it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kourou.etcd import KeyValue, Snapshot
from kourou.failover.set_state import (
    InSyncValue,
    MasterValue,
    MemberValue,
    SetKeys,
    SetState,
    encode_value,
)

KEYS = SetKeys.of("/kourou", "DefaultCluster", "broker-a")


def address_of(member_id: int) -> str:
    return f"127.0.0.1:{10000 + member_id}"


def set_state(
    *,
    master: int | None = 1,
    in_sync: Iterable[int] = (1, 2),
    alive: Iterable[int] = (1, 2, 3),
    epoch: int = 7,
    last_member: int = 3,
    addresses: dict[int, str] | None = None,
) -> SetState:
    """A set of three members in its seventh reign, of which two are in sync."""

    def address(member_id: int) -> str:
        return (addresses or {}).get(member_id, address_of(member_id))

    values: dict[str, Any] = {
        KEYS.epoch: epoch,
        KEYS.last_member: last_member,
        KEYS.in_sync: InSyncValue(version=4, members=tuple(in_sync)),
    }
    for each in alive:
        values[KEYS.member(each)] = MemberValue(
            member_id=each, address=address(each), ha_address="", priority=0
        )
    if master is not None:
        values[KEYS.master] = MasterValue(
            member_id=master, epoch=epoch, address=address(master), ha_address=""
        )
    state = SetState(KEYS)
    state.update(
        Snapshot(9, tuple(KeyValue(key, encode_value(each), 1, 1, 0) for key, each in values.items()))
    )
    return state
