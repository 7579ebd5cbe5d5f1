"""Binary requests that are read in one go: the same comes out as by the general way, or the general way is
taken."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kourou.errors import ProtocolError
from kourou.protocol.binary_request import decode_hot_head
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import decode_ext, decode_head
from kourou.protocol.header_binary import encode_binary_head
from kourou.protocol.headers.send import SendMessageRequestHeaderV2
from kourou.protocol.headers.transactions import EndTransactionRequestHeader
from kourou.protocol.request_head import decode_request_head

ID = "FD0000000000000000000000000000023C875FFD2B2750FAAD730004"
# Field for field what a Java client of 5.5.0 sends.
SEND = {
    "a": "benchmark_transaction_producer",
    "b": "OfficialTransactionProducer",
    "c": "TBW102",
    "d": "1000",
    "e": "0",
    "f": "4",
    "g": "1794849805664",
    "h": "0",
    "i": f"TRAN_MSG\x01true\x02UNIQ_KEY\x01{ID}\x02PGROUP\x01benchmark_transaction_producer\x02",
    "j": "0",
    "k": "false",
    "m": "false",
    "n": "vm",
}
END = {
    "producerGroup": "benchmark_transaction_producer",
    "bname": "vm",
    "commitLogOffset": "9872",
    "topic": "OfficialTransactionProducer",
    "msgId": ID,
    "tranStateTableOffset": "4",
    "commitOrRollback": "8",
    "transactionId": ID,
    "fromTransactionCheck": "false",
}
TYPES: dict[int, type[msgspec.Struct]] = {
    RequestCode.SEND_MESSAGE_V2: SendMessageRequestHeaderV2,
    RequestCode.SEND_BATCH_MESSAGE: SendMessageRequestHeaderV2,
    RequestCode.END_TRANSACTION: EndTransactionRequestHeader,
}


def encoded(code: int, fields: dict[str, str], *, flag: int = 0, remark: str | None = None) -> bytes:
    return encode_binary_head(code, 0, 513, 7, flag, remark, fields)


def general(header: bytes) -> Any:
    """What the general way makes of it: the head and the typed header, or the words of its refusal."""
    try:
        head = decode_head(1, header)
        return _whole(head, head.code)
    except ProtocolError as error:
        return str(error)


def quick(header: bytes) -> Any:
    try:
        head = decode_request_head(1, header)
        return _whole(head, head.code)
    except ProtocolError as error:
        return str(error)


def _whole(head: Any, code: int) -> Any:
    typed = decode_ext(head, TYPES[code]) if code in TYPES else None
    return code, head.language, head.version, head.opaque, head.flag, head.remark, typed


REQUESTS = [
    (RequestCode.SEND_MESSAGE_V2, SEND),
    (RequestCode.SEND_MESSAGE_V2, {name: value for name, value in SEND.items() if name != "n"}),
    (RequestCode.SEND_MESSAGE_V2, {**SEND, "i": "x" * 200}),
    (RequestCode.SEND_MESSAGE_V2, {**SEND, "i": "x" * 30_000}),
    (RequestCode.SEND_MESSAGE_V2, {**SEND, "e": "-1", "g": "-5"}),
    (RequestCode.SEND_BATCH_MESSAGE, {**SEND, "m": "true"}),
    (RequestCode.END_TRANSACTION, END),
    (RequestCode.END_TRANSACTION, {name: END[name] for name in END if name not in ("bname", "topic")}),
]


@pytest.mark.parametrize(("code", "fields"), REQUESTS)
def test_what_clients_send_is_read_in_one_go(code: int, fields: dict[str, str]) -> None:
    header = encoded(code, fields)
    head = decode_hot_head(header)
    assert head is not None and type(head.ext_fields) is TYPES[code]
    assert quick(header) == general(header)


ODD = [
    (RequestCode.SEND_MESSAGE_V2, dict(reversed(SEND.items()))),
    (RequestCode.SEND_MESSAGE_V2, {**SEND, "l": "3"}),
    (RequestCode.SEND_MESSAGE_V2, {**SEND, "more": "x"}),
    (RequestCode.SEND_MESSAGE_V2, {name: value for name, value in SEND.items() if name != "i"}),
    (RequestCode.SEND_MESSAGE_V2, {name: value for name, value in SEND.items() if name != "b"}),
    (RequestCode.SEND_MESSAGE_V2, {**SEND, "i": ""}),
    (RequestCode.SEND_MESSAGE_V2, {**SEND, "i": "clé\x01ключ\x02"}),
    (RequestCode.SEND_MESSAGE_V2, {**SEND, "i": "a\x00b"}),
    (RequestCode.SEND_MESSAGE_V2, {**SEND, "i": "a\x00\x01j\x00\x00\x00\x019"}),
    (RequestCode.SEND_MESSAGE_V2, {**SEND, "i": "x" * 70_000}),
    (RequestCode.SEND_MESSAGE_V2, {**SEND, "e": "one"}),
    (RequestCode.SEND_MESSAGE_V2, {**SEND, "e": str(1 << 31)}),
    (RequestCode.SEND_MESSAGE_V2, {**SEND, "k": "maybe"}),
    (RequestCode.END_TRANSACTION, {**END, "commitLogOffset": str(1 << 63)}),
    (RequestCode.END_TRANSACTION, {}),
]


@pytest.mark.parametrize(("code", "fields"), ODD)
def test_unusual_headers_are_read_by_the_slow_path(code: int, fields: dict[str, str]) -> None:
    header = encoded(code, fields)
    assert decode_hot_head(header) is None
    assert quick(header) == general(header)


@pytest.mark.parametrize("fields", [{"flag": 1}, {"flag": 3}, {"remark": "why"}])
def test_responses_and_remarks_are_read_by_the_slow_path(fields: dict[str, Any]) -> None:
    header = encoded(RequestCode.END_TRANSACTION, END, **fields)
    assert decode_hot_head(header) is None
    assert quick(header) == general(header)


@pytest.mark.parametrize(("code", "fields"), [REQUESTS[0], REQUESTS[6]])
def test_one_byte_that_is_wrong_is_found_out_as_ever(code: int, fields: dict[str, str]) -> None:
    header = encoded(code, fields)
    for position, byte in enumerate(header):
        for wrong in {0, 1, 2, 0x30, 0x31, 0x7F, 0x80, 0xFF, byte - 1 & 0xFF, byte + 1 & 0xFF} - {byte}:
            damaged = header[:position] + bytes((wrong,)) + header[position + 1 :]
            assert quick(damaged) == general(damaged), (position, byte, wrong)
    for end in range(len(header)):
        assert quick(header[:end]) == general(header[:end]), end


def test_lengths_that_make_up_for_each_other_are_found_out() -> None:
    header = encoded(RequestCode.SEND_MESSAGE_V2, SEND)
    # One longer, its neighbour shorter: all entries together still have the length that is written.
    damaged = header.replace(b"\0\1c\0\0\0\x06TBW102", b"\0\1c\0\0\0\x05TBW102").replace(
        b"\0\1d\0\0\0\x041000", b"\0\1d\0\0\0\x051000"
    )
    assert damaged != header and decode_hot_head(damaged) is None
    assert quick(damaged) == general(damaged)


def test_a_text_longer_than_two_bytes_can_say_is_found_out() -> None:
    header = encoded(RequestCode.SEND_MESSAGE_V2, {**SEND, "i": "x" * 70_000})
    damaged = header.replace(
        b"\0\1i" + (70_000).to_bytes(4, "big"), b"\0\1i" + (70_000 - 65_536).to_bytes(4, "big")
    )
    assert damaged != header and decode_hot_head(damaged) is None
    assert quick(damaged) == general(damaged)
