"""Message ids and stored hosts: bytes by hand, months, and text that is no id."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone, tzinfo

import pytest

from kourou.errors import ProtocolError
from kourou.protocol.message_id import (
    UniqueIdGenerator,
    encode_host,
    host_text,
    offset_msg_id,
    parse_offset_msg_id,
    parse_unique_id,
)


class Clock:
    """A clock that stands where it is put."""

    def __init__(self, when: datetime) -> None:
        self.set(when)

    def set(self, when: datetime) -> None:
        self.now_ms = int(when.timestamp() * 1000)

    def __call__(self) -> int:
        return self.now_ms


def generator(clock: Clock, *, ip: str = "127.0.0.1", tz: tzinfo = UTC, first: int = 0) -> UniqueIdGenerator:
    return UniqueIdGenerator(
        ip=ip, pid=0x15080, class_loader_hash=0x5FFD2B27, now_ms=clock, tz=tz, first_counter=first
    )


def test_hosts_as_stored() -> None:
    assert encode_host("127.0.0.1", 10911).hex() == "7f00000100002a9f"
    assert host_text(encode_host("127.0.0.1", 10911)) == "127.0.0.1:10911"
    assert encode_host("::1", 10911).hex() == "00" * 15 + "01" + "00002a9f"
    assert host_text(encode_host("::1", 10911)) == "[::1]:10911"


def test_an_ipv4_peer_on_an_ipv6_socket_is_stored_as_ipv4() -> None:
    assert encode_host("::ffff:10.1.2.3", 80) == encode_host("10.1.2.3", 80)
    assert encode_host("fe80::1%eth0", 80) == encode_host("fe80::1", 80)


def test_offset_id_as_apache_wrote_it() -> None:
    # The record at 895298 of the recorded 4.9.7 store.
    text = offset_msg_id(encode_host("127.0.0.1", 10911), 895298)
    assert text == "7F00000100002A9F00000000000DA942"
    assert parse_offset_msg_id(text) == (encode_host("127.0.0.1", 10911), 895298)
    assert parse_offset_msg_id(text.lower()).address == "127.0.0.1:10911"


def test_offset_id_with_an_ipv6_host() -> None:
    text = offset_msg_id(encode_host("2001:db8::7", 10911), 1 << 40)
    assert len(text) == 56
    assert parse_offset_msg_id(text).address == "[2001:db8::7]:10911"
    assert parse_offset_msg_id(text).phy_offset == 1 << 40


@pytest.mark.parametrize(
    "text",
    [
        "",
        "7F",
        "7F00000100002A9F00000000000DA94",
        "7F00000100002A9F00000000000DA94G",
        "7F00000100002A9F 0000000000DA942",
        "7F 00 00 01 00 00 2A 9F 00 00 00",
        "7F00000100012A9F00000000000DA942",  # port over 65535
        "7F00000100002A9FF0000000000DA942",  # negative offset
        "x" * 100_000,
    ],
)
def test_text_that_is_no_offset_id(text: str) -> None:
    with pytest.raises(ProtocolError) as error:
        parse_offset_msg_id(text)
    assert len(str(error.value)) < 200


def test_unique_id_byte_by_byte() -> None:
    clock = Clock(datetime(2026, 11, 15, 3, 2, 44, 49_000, tzinfo=UTC))
    next_id = generator(clock)
    first, second = next_id(), next_id()
    assert first == "7F00000150805FFD2B2748C054510000"
    assert second == first[:-4] + "0001"
    assert parse_unique_id(first) == (bytes([127, 0, 0, 1]), 0x5080, 0x5FFD2B27, 0x48C05451, 0)


def test_unique_id_with_an_ipv6_address() -> None:
    clock = Clock(datetime(2026, 11, 15, tzinfo=UTC))
    text = generator(clock, ip="2001:db8::7")()
    assert len(text) == 56
    assert parse_unique_id(text).ip == encode_host("2001:db8::7", 0)[:16]


def test_the_counter_wraps() -> None:
    next_id = generator(Clock(datetime(2026, 11, 15, tzinfo=UTC)), first=0xFFFF)
    assert [next_id()[-4:], next_id()[-4:]] == ["FFFF", "0000"]


def test_the_base_moves_with_the_local_month() -> None:
    tz = timezone(timedelta(hours=8))
    clock = Clock(datetime(2026, 12, 31, 23, 59, 59, tzinfo=tz))
    next_id = generator(clock, tz=tz)
    assert parse_unique_id(next_id()).since_month_start_ms == 31 * 86_400_000 - 1000
    clock.now_ms += 1000
    assert parse_unique_id(next_id()).since_month_start_ms == 0
    clock.now_ms += 5
    assert parse_unique_id(next_id()).since_month_start_ms == 5


def test_a_clock_set_back_over_the_border_is_written_as_zero() -> None:
    clock = Clock(datetime(2026, 11, 1, tzinfo=UTC))
    next_id = generator(clock)
    clock.now_ms -= 500_000
    assert parse_unique_id(next_id()).since_month_start_ms == 0


def test_a_clock_set_back_by_days_starts_from_the_month_before() -> None:
    clock = Clock(datetime(2026, 11, 1, tzinfo=UTC))
    next_id = generator(clock)
    clock.set(datetime(2026, 10, 31, tzinfo=UTC))
    assert parse_unique_id(next_id()).since_month_start_ms == 30 * 86_400_000


def test_the_time_of_an_id_is_the_nearest_past_one() -> None:
    made = datetime(2026, 12, 20, 12, tzinfo=UTC)
    parts = parse_unique_id(generator(Clock(made))())
    made_ms = int(made.timestamp() * 1000)
    assert parts.nearest_time_ms(made_ms + 60_000, UTC) == made_ms
    next_year = int(datetime(2027, 1, 5, tzinfo=UTC).timestamp() * 1000)
    assert parts.nearest_time_ms(next_year, UTC) == made_ms


def test_the_local_zone_is_used_without_one() -> None:
    clock = Clock(datetime(2026, 11, 15))
    next_id = UniqueIdGenerator(ip="127.0.0.1", pid=1, class_loader_hash=1, now_ms=clock)
    parts = parse_unique_id(next_id())
    assert parts.nearest_time_ms(clock.now_ms + 1) == clock.now_ms


def test_ids_of_the_go_client_are_read_as_they_are() -> None:
    text = "0A010203C35000000001" + "00000abc" + "000f"
    assert parse_unique_id(text).counter == 15


@pytest.mark.parametrize("text", ["", "zz" * 16, "0A" * 15, "0A 01020304" * 3])
def test_text_that_is_no_unique_id(text: str) -> None:
    with pytest.raises(ProtocolError, match="unique message id"):
        parse_unique_id(text)
