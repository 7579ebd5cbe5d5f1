"""A client for etcd, over the JSON gateway that every member serves beside gRPC.

    async with EtcdClient(["127.0.0.1:2379"]) as etcd:
        lease = await etcd.grant(ttl_s=6)
        mine = put("/master", b"broker-a", lease=lease.lease_id)
        is_master = (await etcd.txn([absent("/master")], success=[mine])).succeeded

Not here: what the keys mean.
"""

from __future__ import annotations

from kourou.etcd.client import EtcdClient
from kourou.etcd.operations import absent, created_at, delete, get, modified_at, put, value_is
from kourou.etcd.values import Changes, KeyValue, Lease, RangeResult, Snapshot, TxnResult
from kourou.etcd.watch import watch

__all__ = [
    "Changes",
    "EtcdClient",
    "KeyValue",
    "Lease",
    "RangeResult",
    "Snapshot",
    "TxnResult",
    "absent",
    "created_at",
    "delete",
    "get",
    "modified_at",
    "put",
    "value_is",
    "watch",
]
