"""Comparisons and operations of a transaction, as etcd's gateway takes them."""

from __future__ import annotations

from kourou.etcd.values import Json, to_text


def absent(key: str) -> Json:
    """The key does not exist."""
    return created_at(key, 0)


def created_at(key: str, revision: int) -> Json:
    """The key exists since this revision: it was not deleted meanwhile, and not created by another."""
    return {"key": to_text(key), "target": "CREATE", "result": "EQUAL", "create_revision": str(revision)}


def modified_at(key: str, revision: int) -> Json:
    """The key was changed at this revision last; 0: it does not exist."""
    return {"key": to_text(key), "target": "MOD", "result": "EQUAL", "mod_revision": str(revision)}


def value_is(key: str, value: bytes) -> Json:
    """The key exists, with this value."""
    return {"key": to_text(key), "target": "VALUE", "result": "EQUAL", "value": to_text(value)}


def put(key: str, value: bytes, *, lease: int = 0) -> Json:
    """Set the key, which is deleted with the lease if there is one."""
    fields: Json = {"key": to_text(key), "value": to_text(value)}
    if lease:
        fields["lease"] = str(lease)
    return {"request_put": fields}


def delete(key: str) -> Json:
    """Delete the key, if it exists."""
    return {"request_delete_range": {"key": to_text(key)}}


def get(key: str) -> Json:
    """Read the key."""
    return {"request_range": {"key": to_text(key)}}


def prefix_range(prefix: str) -> Json:
    """The fields of a request for all keys with a prefix; "" is all keys."""
    if not prefix:
        return {"key": to_text(b"\0"), "range_end": to_text(b"\0")}
    start = prefix.encode()
    end = start.rstrip(b"\xff")
    return {"key": to_text(start), "range_end": to_text(end[:-1] + bytes([end[-1] + 1]))}
