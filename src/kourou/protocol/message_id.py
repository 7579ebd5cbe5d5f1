"""Message ids: the unique id that a client gives, the offset id that a broker gives.

    unique id   address 4 or 16 · process id 2 · class-loader hash 4 · time 4 · counter 2
    offset id   store host address 4 or 16 · port 4 · CommitLog offset 8

Both are upper-case hex, 32 characters with an IPv4 address and 56 with IPv6; the time is
milliseconds since local midnight of the first of the month. The Go client writes the end of
its ids in lower case, so ids are compared and stored as they came and never change case.

A host in stored form (address, then port as 4 bytes) is part of the offset id and is made
and read here. Not here: the clock and the address that go into it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from datetime import datetime, tzinfo
from ipaddress import IPv6Address, ip_address
from itertools import count
from typing import Final, NamedTuple

from kourou.errors import ProtocolError
from kourou.protocol.layout import HOST_V4_BYTES

_UNIQUE_TAIL: Final = struct.Struct(">HIIH")
_OFFSET_TAIL: Final = struct.Struct(">iq")
# A clock set back by less than this is a correction, not another month.
_CLOCK_CORRECTION_MS: Final = 1_000_000


def encode_host(ip: str, port: int) -> bytes:
    """Address and port as a record stores them: 8 bytes for IPv4, 20 for IPv6.

    An IPv4 address that arrived through an IPv6 socket (`::ffff:a.b.c.d`) is stored as IPv4,
    because C++ clients read no other; a scope (`fe80::1%eth0`) is left out.
    """
    return ip_bytes(ip) + port.to_bytes(4, "big")


def ip_bytes(ip: str) -> bytes:
    """The 4 or 16 bytes of an address, with `::ffff:a.b.c.d` taken for the IPv4 it is."""
    address = ip_address(ip.partition("%")[0])
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped.packed
    return address.packed


def host_text(host: bytes) -> str:
    """A stored host as `127.0.0.1:10911` or `[::1]:10911`."""
    port = int.from_bytes(host[-4:], "big", signed=True)
    if len(host) == HOST_V4_BYTES:
        return f"{host[0]}.{host[1]}.{host[2]}.{host[3]}:{port}"
    return f"[{IPv6Address(host[:-4])}]:{port}"


def offset_msg_id(store_host: bytes, phy_offset: int) -> str:
    """The id under which the broker at `store_host` finds the record at `phy_offset`."""
    return (store_host + phy_offset.to_bytes(8, "big", signed=True)).hex().upper()


class OffsetMsgId(NamedTuple):
    """The parts of an offset id: where the record is."""

    store_host: bytes
    phy_offset: int

    @property
    def address(self) -> str:
        """`host:port` of the broker that holds the record."""
        return host_text(self.store_host)


def parse_offset_msg_id(msg_id: str) -> OffsetMsgId:
    """The parts of an offset id; ProtocolError where it cannot be one."""
    raw = _id_bytes(msg_id, "offset message id")
    port, phy_offset = _OFFSET_TAIL.unpack_from(raw, len(raw) - _OFFSET_TAIL.size)
    if not 0 <= port <= 65535 or phy_offset < 0:
        raise ProtocolError(f"offset message id {msg_id} gives port {port} and offset {phy_offset}")
    return OffsetMsgId(raw[:-8], phy_offset)


class UniqueId(NamedTuple):
    """The parts of a unique id. `since_month_start_ms` counts in the writer's time zone."""

    ip: bytes
    pid: int
    class_loader_hash: int
    since_month_start_ms: int
    counter: int

    def nearest_time_ms(self, now_ms: int, tz: tzinfo | None = None) -> int:
        """When the id was made, if that was within a month before `now_ms` (`tz` None: local)."""
        start_ms, _ = _month_bounds(now_ms, tz)
        if start_ms + self.since_month_start_ms >= now_ms:
            start_ms, _ = _month_bounds(start_ms - 1, tz)
        return start_ms + self.since_month_start_ms


def parse_unique_id(msg_id: str) -> UniqueId:
    """The parts of a unique id; ProtocolError where it cannot be one."""
    raw = _id_bytes(msg_id, "unique message id")
    split = len(raw) - _UNIQUE_TAIL.size
    return UniqueId(raw[:split], *_UNIQUE_TAIL.unpack_from(raw, split))


def _id_bytes(msg_id: str, kind: str) -> bytes:
    if len(msg_id) not in (32, 56):
        raise ProtocolError(f"{kind} {msg_id[:80]!r} has {len(msg_id)} characters instead of 32 or 56")
    try:
        raw = bytes.fromhex(msg_id)
    except ValueError:
        raw = b""
    # fromhex passes over blanks, so the length is looked at again.
    if len(raw) * 2 != len(msg_id):
        raise ProtocolError(f"{kind} {msg_id!r} is not hexadecimal")
    return raw


class UniqueIdGenerator:
    """Makes unique ids: different within a process as long as 65,536 last a millisecond.

    Safe to call from several threads: the counter moves atomically.
    """

    def __init__(
        self,
        *,
        ip: str,
        pid: int,
        class_loader_hash: int,
        now_ms: Callable[[], int],
        tz: tzinfo | None = None,
        first_counter: int = 0,
    ) -> None:
        fixed = ip_bytes(ip) + struct.pack(">HI", pid & 0xFFFF, class_loader_hash & 0xFFFFFFFF)
        self._prefix = fixed.hex().upper()
        self._now_ms = now_ms
        self._tz = tz
        self._counter = count(first_counter)
        self._month_ms = _month_bounds(now_ms(), tz)

    def __call__(self) -> str:
        """The next unique id: 32 hexadecimal digits."""
        now_ms = self._now_ms()
        start_ms, end_ms = self._month_ms
        since_ms = now_ms - start_ms
        if now_ms >= end_ms or since_ms < 0:
            since_ms = self._enter_month(now_ms)
        return f"{self._prefix}{since_ms:08X}{next(self._counter) & 0xFFFF:04X}"

    def _enter_month(self, now_ms: int) -> int:
        start_ms, _ = self._month_ms
        if -_CLOCK_CORRECTION_MS < now_ms - start_ms < 0:
            return 0
        self._month_ms = _month_bounds(now_ms, self._tz)
        return now_ms - self._month_ms[0]


def _month_bounds(now_ms: int, tz: tzinfo | None) -> tuple[int, int]:
    """Midnight of the first of this month and of the next, in milliseconds."""
    first = datetime.fromtimestamp(now_ms // 1000, tz).replace(
        day=1, hour=0, minute=0, second=0, microsecond=0
    )
    following = first.replace(year=first.year + first.month // 12, month=first.month % 12 + 1)
    return int(first.timestamp()) * 1000, int(following.timestamp()) * 1000
