"""What etcd stores and answers, from the gateway's JSON.

Keys and values are base64, 64-bit numbers are strings, and fields with default values are absent.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from dataclasses import dataclass
from typing import Any, TypeAlias

Json: TypeAlias = dict[str, Any]


def to_text(data: str | bytes) -> str:
    """A key or a value for a request."""
    return b64encode(data.encode() if isinstance(data, str) else data).decode()


def number(fields: Json, name: str) -> int:
    """A number of a response; absent is 0."""
    return int(fields.get(name, 0))


@dataclass(frozen=True, slots=True)
class KeyValue:
    """A key with its value. `created_revision` identifies this life of the key: it changes when the key is
    deleted and created again."""

    key: str
    value: bytes
    created_revision: int
    modified_revision: int
    lease_id: int

    @classmethod
    def of(cls, fields: Json) -> KeyValue:
        """From a response. A key that is no UTF-8 keeps its bytes as surrogates."""
        return cls(
            key=b64decode(fields["key"]).decode(errors="surrogateescape"),
            value=b64decode(fields.get("value", "")),
            created_revision=number(fields, "create_revision"),
            modified_revision=number(fields, "mod_revision"),
            lease_id=number(fields, "lease"),
        )


@dataclass(frozen=True, slots=True)
class RangeResult:
    """Keys, and the revision of the store at which they were read."""

    revision: int
    keys: tuple[KeyValue, ...]

    @classmethod
    def of(cls, fields: Json) -> RangeResult:
        """From a response, or from that of a `get` in a transaction."""
        return cls(
            number(fields.get("header", {}), "revision"),
            tuple(KeyValue.of(each) for each in fields.get("kvs", ())),
        )

    @property
    def first(self) -> KeyValue | None:
        """The key, where one was read; None if it does not exist."""
        return self.keys[0] if self.keys else None


@dataclass(frozen=True, slots=True)
class TxnResult:
    """Whether the comparisons held, and what the `get`s of the branch that was executed have read."""

    succeeded: bool
    revision: int
    reads: tuple[RangeResult, ...]

    @classmethod
    def of(cls, fields: Json) -> TxnResult:
        """From a response."""
        responses = fields.get("responses", ())
        return cls(
            succeeded=bool(fields.get("succeeded", False)),
            revision=number(fields.get("header", {}), "revision"),
            reads=tuple(
                RangeResult.of(each["response_range"]) for each in responses if "response_range" in each
            ),
        )


@dataclass(frozen=True, slots=True)
class Lease:
    """A lease that was granted or renewed, and the seconds that it lasts from then on."""

    lease_id: int
    ttl_s: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Of a watch: all keys at a revision. It replaces everything that was known."""

    revision: int
    keys: tuple[KeyValue, ...]


@dataclass(frozen=True, slots=True)
class Changes:
    """Of a watch: the changes of one or more revisions, in their order, up to `revision`. A key in `deleted`
    has the revision of its deletion."""

    revision: int
    put: tuple[KeyValue, ...]
    deleted: tuple[KeyValue, ...]
