"""The template of binary answers has to give the bytes that the general way gives."""

from __future__ import annotations

import itertools

import pytest

from kourou.broker.send.send_answer import BinarySendAnswer
from kourou.protocol.codes import SerializeType
from kourou.protocol.command import encode_response
from kourou.protocol.ext_fields import ext_fields_of
from kourou.protocol.headers.send import SendMessageResponseHeader

V4, V6 = "7F00000100002A9F", "FD00000000000000000000000000000200002A9F"


UNIQ_KEYS = ["k", "7F00000150805FFD2B2748C057C10016", "é" * 127, "x" * 255]
NUMBERS = [(0, 0, 0, 0), (-1, 1 << 62, 1 << 30, 1 << 62)]


@pytest.mark.parametrize("region", ["DefaultRegion", "", "50%d é", "%", "r" * 300])
@pytest.mark.parametrize("id_prefix", [V4, V6])
@pytest.mark.parametrize("trace_on", [True, False])
def test_bytes_are_those_of_any_other_answer(id_prefix: str, region: str, trace_on: bool) -> None:
    answer = BinarySendAnswer(id_prefix, region, trace_on=trace_on)
    for uniq_key, (opaque, phy_offset, queue_id, queue_offset) in itertools.product(UNIQ_KEYS, NUMBERS):
        header = SendMessageResponseHeader(
            msg_id=f"{id_prefix}{phy_offset:016X}",
            queue_id=queue_id,
            queue_offset=queue_offset,
            transaction_id=uniq_key,
            msg_region=region,
            trace_on=trace_on,
        )
        expected = encode_response(SerializeType.ROCKETMQ, opaque, 0, None, ext_fields_of(header))
        assert answer.frame(opaque, phy_offset, queue_id, queue_offset, uniq_key.encode()) == expected


@pytest.mark.parametrize("uniq_key", ["", "x" * 256])
def test_an_id_that_does_not_fit_gets_no_template(uniq_key: str) -> None:
    assert BinarySendAnswer(V4, "r", trace_on=True).frame(1, 2, 3, 4, uniq_key.encode()) == b""
