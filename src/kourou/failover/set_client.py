"""SetClient: the transactions of one member on the keys of its set in etcd.

Each of them compares what the member knows. A write whose outcome is not known raises
EtcdUnavailableError with `may_be_done`; the caller reads what holds.
"""

from __future__ import annotations

import logging
import secrets
import ssl
from dataclasses import dataclass
from typing import Self

from kourou.config.broker import BrokerConfig
from kourou.config.checks import split_addresses
from kourou.errors import ConfigError, EtcdRefusedError, EtcdUnavailableError
from kourou.etcd import EtcdClient, Snapshot, absent, created_at, delete, get, modified_at, put
from kourou.failover.identity import MemberIdentity
from kourou.failover.set_state import (
    InSyncValue,
    MasterValue,
    MemberValue,
    SetKeys,
    SetState,
    SetValue,
    encode_value,
)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Throne:
    """The master's key as this member has created it, and the in-sync set as it was written last."""

    created_revision: int
    in_sync: InSyncValue
    in_sync_revision: int


@dataclass(frozen=True, slots=True)
class HeldKeys:
    """The lease of a member's key, that of the master's key, and since when this exists; 0: it does not."""

    member_lease_id: int
    master_lease_id: int
    master_created_revision: int


class SetClient:
    """The keys of one set."""

    def __init__(self, etcd: EtcdClient, keys: SetKeys) -> None:
        self.etcd = etcd
        self.keys = keys

    @classmethod
    def of(cls, config: BrokerConfig) -> Self:
        """The set of a broker with this configuration. ConfigError."""
        tls = None
        if config.failover_etcd_ca_file:
            try:
                tls = ssl.create_default_context(cafile=config.failover_etcd_ca_file)
            except (OSError, ssl.SSLError) as error:
                raise ConfigError(
                    f"failoverEtcdCaFile={config.failover_etcd_ca_file}: {error.strerror or error}"
                ) from error
        etcd = EtcdClient(
            split_addresses(config.failover_etcd_endpoints),
            tls=tls,
            user=config.failover_etcd_user or None,
            password=config.failover_etcd_password or None,
        )
        keys = SetKeys.of(config.failover_etcd_prefix, config.broker_cluster_name, config.broker_name)
        return cls(etcd, keys)

    async def read(self) -> SetState:
        """The state of this moment."""
        found = await self.etcd.get_prefix(self.keys.prefix)
        state = SetState(self.keys)
        state.update(Snapshot(found.revision, found.keys))
        return state

    # -- members -----------------------------------------------------------------------------------

    async def join(self) -> MemberIdentity:
        """The identity of a new member; the first one founds the set."""
        while True:
            state = await self.read()
            set_id = state.set_id or secrets.token_hex(8)
            number = state.last_member + 1
            result = await self.etcd.txn(
                [
                    modified_at(self.keys.set, state.modified_revision(self.keys.set)),
                    modified_at(self.keys.last_member, state.modified_revision(self.keys.last_member)),
                ],
                [
                    put(self.keys.set, encode_value(SetValue(set_id=set_id))),
                    put(self.keys.last_member, encode_value(number)),
                ],
            )
            if result.succeeded:
                return MemberIdentity(set_id=set_id, member_id=number)

    def check(self, identity: MemberIdentity, state: SetState) -> None:
        """ConfigError if a store is not one of this set's."""
        if state.set_id == identity.set_id:
            return
        place = f"{self.keys.prefix} in etcd at {', '.join(self.etcd.endpoints)}"
        if state.set_id is None:
            raise ConfigError(
                f"fail-over: the store is member {identity.member_id} of set {identity.set_id}, but there is "
                f"no set at {place}; correct failoverEtcdEndpoints or failoverEtcdPrefix, or restore etcd"
            )
        raise ConfigError(
            f"fail-over: the store is member {identity.member_id} of set {identity.set_id}, but {place} has "
            f"set {state.set_id}; give this broker its own store, brokerName or failoverEtcdPrefix"
        )

    async def show_alive(self, member: MemberValue, lease_id: int) -> None:
        """Write the member's key, which goes with its lease."""
        await self.etcd.put(self.keys.member(member.member_id), encode_value(member), lease=lease_id)

    # -- reigns ------------------------------------------------------------------------------------

    async def take_over(
        self,
        state: SetState,
        master: MasterValue,
        in_sync: tuple[int, ...],
        lease_id: int,
    ) -> Throne | None:
        """Become master where there is none, or write the key of a reign again, which has the same epoch;
        None: another one is master, or the state has changed."""
        keys, old = self.keys, state.in_sync
        value = InSyncValue(
            version=old.version + 1 if old else 1,
            members=in_sync,
            phy_offset=old.phy_offset if old else 0,
        )
        result = await self.etcd.txn(
            [
                absent(keys.master),
                modified_at(keys.epoch, state.modified_revision(keys.epoch)),
                modified_at(keys.in_sync, state.modified_revision(keys.in_sync)),
            ],
            [
                put(keys.master, encode_value(master), lease=lease_id),
                put(keys.epoch, encode_value(master.epoch)),
                put(keys.in_sync, encode_value(value)),
                delete(keys.handover),
            ],
        )
        return Throne(result.revision, value, result.revision) if result.succeeded else None

    async def held_by(self, member_id: int) -> HeldKeys:
        """The keys that depend on a member's lease."""
        reads = (await self.etcd.txn([], [get(self.keys.member(member_id)), get(self.keys.master)])).reads
        member, master = (read.first for read in reads)
        return HeldKeys(
            member_lease_id=member.lease_id if member else 0,
            master_lease_id=master.lease_id if master else 0,
            master_created_revision=master.created_revision if master else 0,
        )

    async def remove_master(self, created_revision: int, *, successor: int | None = None) -> bool:
        """Remove the master's key, if it is still the one of this revision; `successor` goes first. Whether
        it was."""
        last = [put(self.keys.handover, encode_value(successor))] if successor is not None else []
        result = await self.etcd.txn(
            [created_at(self.keys.master, created_revision)], [*last, delete(self.keys.master)]
        )
        return result.succeeded

    async def change_in_sync(
        self, throne: Throne, members: tuple[int, ...], *, phy_offset: int
    ) -> Throne | None:
        """Write another in-sync set; None: the reign is over."""
        value = InSyncValue(version=throne.in_sync.version + 1, members=members, phy_offset=phy_offset)
        result = await self.etcd.txn(
            [
                created_at(self.keys.master, throne.created_revision),
                modified_at(self.keys.in_sync, throne.in_sync_revision),
            ],
            [put(self.keys.in_sync, encode_value(value))],
        )
        return Throne(throne.created_revision, value, result.revision) if result.succeeded else None

    async def read_throne(self, throne: Throne) -> Throne | None:
        """What holds after a change of unknown outcome; None: the reign is over."""
        state = await self.read()
        in_sync = state.in_sync
        if state.created_revision(self.keys.master) != throne.created_revision or in_sync is None:
            return None
        return Throne(throne.created_revision, in_sync, state.modified_revision(self.keys.in_sync))

    async def end_lease(self, lease_id: int) -> None:
        """Remove the keys of a lease, as far as etcd can be reached: otherwise they go when it expires."""
        try:
            await self.etcd.revoke(lease_id)
        except (EtcdUnavailableError, EtcdRefusedError) as error:
            _log.info("the keys of lease %x stay until it expires: %s", lease_id, error)
