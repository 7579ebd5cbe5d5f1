"""Layouts: `struct`, numpy and C agree on every field, and bounds follow from the fields that hold them."""

from __future__ import annotations

from pathlib import Path
from struct import error, pack

import numpy as np
import pytest

from kourou.protocol import layout
from kourou.protocol.headers.send import SendMessageRequestHeaderV2
from kourou.protocol.layout import I2, I4, I8, RECORD, RECORD_HEADS, SEND_FIELDS, U1, U2, U4, Kind, Layout
from kourou.protocol.layout_header import c_header

HEADER = Path(__file__).parents[3] / "src/kourou/store/native/layout.h"
LAYOUTS = [value for value in vars(layout).values() if isinstance(value, Layout)]
LAYOUTS += [head for flags, head in RECORD_HEADS.items() if flags]


def test_the_header_of_the_kernel_is_made_from_the_table() -> None:
    assert HEADER.read_text() == c_header(), "run make layout"


@pytest.mark.parametrize("each", LAYOUTS, ids=lambda each: f"{each.name} {each.size}")
def test_struct_and_numpy_place_fields_alike(each: Layout) -> None:
    raw = bytes(range(1, each.size + 1))
    dtype = np.dtype(each.dtype())
    assert each.struct().size == each.size == dtype.itemsize
    row = np.frombuffer(raw, dtype)[0]
    for (name, kind), value in zip(each.fields, each.struct().unpack(raw), strict=True):
        stored = raw[each.at(name) : each.end(name)]
        assert stored == (value if isinstance(value, bytes) else pack(f">{kind.code}", value))
        if kind is layout.HOST_V6:
            assert row[name].tobytes() == value
        else:
            assert row[name] == (int.from_bytes(value) if kind is layout.HOST_V4 else value)
        assert each.part(name).unpack_from(raw) == (value,)


def test_parts_of_layouts_that_follow_each_other() -> None:
    part = layout.CQ_UNIT.part("size", is_padded=True)
    units = layout.CQ_UNIT.struct().pack(1, 2, 3) + layout.CQ_UNIT.struct().pack(4, 5, 6)
    assert list(part.iter_unpack(units)) == [(2,), (5,)]
    assert layout.CQ_UNIT.part("phy_offset", "tags_code").unpack_from(units, 20) == (4, 6)


@pytest.mark.parametrize("kind", [U1, I2, U2, I4, U4, I8], ids=lambda kind: kind.dtype)
def test_the_bounds_of_a_kind_are_what_it_can_hold(kind: Kind) -> None:
    for number in (kind.low, kind.high):
        assert np.array(number, kind.dtype).tobytes() == pack(f">{kind.code}", number)
    for number in (kind.low - 1, kind.high + 1):
        with pytest.raises(error):
            pack(f">{kind.code}", number)


def test_records_are_where_rocketmq_has_them() -> None:
    # From the table in RocketMQ's CommitLog and MessageDecoder.
    assert RECORD.offsets == {
        "total_size": 0,
        "magic": 4,
        "body_crc": 8,
        "queue_id": 12,
        "flag": 16,
        "queue_offset": 20,
        "phy_offset": 28,
        "sys_flag": 36,
        "born_timestamp": 40,
        "born_host": 48,
        "store_timestamp": 56,
        "store_host": 64,
        "reconsume_times": 72,
        "prepared_transaction_offset": 76,
        "body_length": 84,
    }
    assert {flags: head.size for flags, head in RECORD_HEADS.items()} == {
        0: 88,
        0x10: 100,
        0x20: 100,
        0x30: 112,
    }
    assert layout.CQ_UNIT.offsets == {"phy_offset": 0, "size": 8, "tags_code": 12}


def test_letters_of_a_send_are_in_order_and_name_the_fields_of_its_header() -> None:
    assert "".join(field.letter for field in SEND_FIELDS) == "abcdefghijklmn"
    names = SendMessageRequestHeaderV2.__struct_fields__
    assert [field.name for field in SEND_FIELDS] == [name for name in names if "kourou" not in name]
