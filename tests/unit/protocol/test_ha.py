"""The HA link's streams: any split of the bytes gives the same, and what is no link is refused."""

from __future__ import annotations

import random

import pytest

from kourou.errors import ProtocolError
from kourou.protocol.ha import (
    HA_HELLO,
    MAX_HELLO_BYTES,
    Epoch,
    LogTail,
    MasterHello,
    MasterStream,
    SlaveHello,
    SlaveStream,
    Transfer,
    encode_hello,
    encode_report,
    transfer_head,
)

HELLO = SlaveHello(
    cluster="c",
    broker_name="b",
    broker_id=1,
    epochs=(Epoch(1, 0), Epoch(2, 700)),
    min_phy_offset=0,
    max_phy_offset=900,
    file_bytes=1024,
    tail=LogTail.of(896, b"tail"),
)


def pieces(raw: bytes, seed: int) -> list[bytes]:
    sizes = random.Random(seed)
    cut = []
    while raw:
        size = sizes.randint(1, 20)
        cut.append(raw[:size])
        raw = raw[size:]
    return cut


@pytest.mark.parametrize("seed", range(5))
def test_a_master_reads_hello_and_reports_in_any_pieces(seed: int) -> None:
    stream, found = SlaveStream(), []
    for piece in pieces(encode_hello(HELLO) + encode_report(900) + encode_report(1_000), seed):
        one = stream.feed(piece)
        found.append(one)
        if isinstance(one, SlaveHello):
            found.append(stream.feed(b""))
    assert [each for each in found if each is not None][0] == HELLO
    assert [each for each in found if isinstance(each, int)][-1] == 1_000


def test_of_several_reports_the_last_complete_one_counts() -> None:
    stream = SlaveStream()
    assert stream.feed(encode_report(1) + encode_report(2) + encode_report(3)[:5]) == 2
    assert stream.feed(encode_report(3)[5:]) == 3
    assert stream.feed(b"") is None


@pytest.mark.parametrize(
    "raw",
    [
        encode_report(-1),
        b"\xff" * 8,
        b"\xffKOUROU\x02" + bytes(8),
        encode_hello(HELLO)[:8] + (MAX_HELLO_BYTES + 1).to_bytes(4, "big"),
        encode_hello(HELLO)[:8] + (-1).to_bytes(4, "big", signed=True),
        encode_hello(HELLO)[:8] + (2).to_bytes(4, "big") + b"{}",
        encode_hello(HELLO)[:8] + (4).to_bytes(4, "big") + b"\xfe\xfe\xfe\xfe",
    ],
)
def test_what_is_not_a_slave_is_refused(raw: bytes) -> None:
    stream = SlaveStream()
    with pytest.raises(ProtocolError):
        for at in range(len(raw)):
            stream.feed(raw[at : at + 1])


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("has_hello", [True, False])
def test_a_slave_reads_transfers_in_any_pieces(seed: int, has_hello: bool) -> None:
    sent = [(0, b"a" * 30), (30, b""), (30, b"b"), (31, b"c" * 29)]
    raw = b"".join(transfer_head(at, len(data)) + data for at, data in sent)
    answer = MasterHello(epochs=(Epoch(1, 0),), max_phy_offset=60)
    stream = MasterStream(30, expects_hello=has_hello)
    found: list[object] = []
    for piece in pieces((encode_hello(answer) if has_hello else b"") + raw, seed):
        stream.room()[: len(piece)] = piece
        stream.filled(len(piece))
        while (one := stream.next()) is not None:
            found.append((one.phy_offset, bytes(one.data)) if isinstance(one, Transfer) else one)
    assert found == [*([answer] if has_hello else []), *sent]


@pytest.mark.parametrize(
    "head", [transfer_head(-1, 0), transfer_head(0, 31), transfer_head(0, -1), b"HTTP/1.1 400"]
)
def test_what_is_not_a_master_is_refused(head: bytes) -> None:
    stream = MasterStream(30, expects_hello=False)
    stream.room()[: len(head)] = head
    stream.filled(len(head))
    with pytest.raises(ProtocolError):
        stream.next()


def test_fields_of_a_later_version_are_ignored() -> None:
    raw = encode_hello(HELLO)
    later = raw[HA_HELLO.size : -1] + b',"newField":{"a":1}}'
    stream = SlaveStream()
    assert stream.feed(raw[:8] + len(later).to_bytes(4, "big") + later) == HELLO
