"""The server of `floor` answers each request once, however its bytes arrive."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path

import pytest
from benchmarks import floor
from benchmarks._floor_server import PULL, FloorProtocol, Ring

from kourou.protocol.codes import SerializeType
from kourou.protocol.command import RemotingCommand, decode_command
from kourou.protocol.frame import FrameDecoder
from kourou.protocol.record import decode_records

JSON = SerializeType.JSON
RING_BYTES = 4096


class Socket(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.written += b"".join(list_of_data)


def request(code: int, opaque: int, body: bytes = b"", form: SerializeType = JSON, **fields: str) -> bytes:
    return RemotingCommand(
        code, opaque=opaque, ext_fields=fields, body=body, serialize_type=int(form)
    ).encode()


def answers(stream: bytes, piece_bytes: int, path: Path) -> list[RemotingCommand]:
    """What the server says to a stream that comes in pieces."""
    protocol, socket = FloorProtocol(Ring(path, RING_BYTES)), Socket()
    protocol.connection_made(socket)
    for at in range(0, len(stream), piece_bytes):
        protocol.data_received(stream[at : at + piece_bytes])
    return [decode_command(frame) for frame in FrameDecoder().feed(bytes(socket.written))]


@pytest.mark.parametrize("piece_bytes", [1, 7, 100, 1000, 4000])
def test_sends_are_answered_and_written_whatever_the_pieces(piece_bytes: int, tmp_path: Path) -> None:
    stream = b"".join(request(310, 98 + at, b"b" * 300 * at) for at in range(4))
    found = answers(stream, piece_bytes, tmp_path / "ring")
    assert [(answer.code, answer.opaque, answer.is_response) for answer in found] == [
        (0, opaque, True) for opaque in (98, 99, 100, 101)
    ]
    assert (tmp_path / "ring").read_bytes().rstrip(b"\0") == stream


def test_a_send_is_not_answered_before_all_of_it_has_come(tmp_path: Path) -> None:
    stream = request(320, 1) + request(320, 2, b"body")
    assert [answer.opaque for answer in answers(stream[:-1], len(stream), tmp_path / "ring")] == [1]


def test_the_file_does_not_grow(tmp_path: Path) -> None:
    stream = b"".join(request(10, at, b"b" * 1000) for at in range(20))
    assert len(answers(stream, 1100, tmp_path / "ring")) == 20
    assert (tmp_path / "ring").stat().st_size == RING_BYTES


def test_a_binary_header_has_opaque_in_its_place(tmp_path: Path) -> None:
    stream = request(310, 77, b"body", SerializeType.ROCKETMQ)
    assert [(answer.code, answer.opaque) for answer in answers(stream, 1000, tmp_path / "ring")] == [(0, 77)]


@pytest.mark.parametrize("form", SerializeType)
@pytest.mark.parametrize("most", [1, 32])
def test_a_pull_gets_as_many_records_as_it_asks_for(form: SerializeType, most: int, tmp_path: Path) -> None:
    stream = request(PULL, 5, form=form, maxMsgNums=str(most))
    (answer,) = answers(stream, 1000, tmp_path / "ring")
    assert [message.queue_offset for message in decode_records(answer.body)] == list(range(most))
    assert answer.ext_fields and answer.ext_fields["nextBeginOffset"] == str(most)


def test_pulls_come_before_the_largest_bodies() -> None:
    names = [row.name for row in floor.rows()]
    assert len(names) == 7 and "64 KiB" in names[-1]
    assert [name for name in names if "pull" in name] == names[3:6]
