"""The server of `floor`: what no broker on uvloop can leave out, and nothing else.

    python _floor_server.py PORT FILE BYTES

Sends are answered after one `pwrite` for all bytes of a read: Linux has them, as under asynchronous flush. No
field but `opaque` is read, and there are no offsets, queues, checksums or limits. FILE is allocated at the
start, and written again from its beginning when it is full. Pulls get the same records again and again, from
memory. All other requests succeed.

It relies on what loadgen.c does: `code` is the first field of a JSON header, only sends and heartbeats have a
body, and a connection that sends does nothing else at the same time. Answers have JSON headers.
"""

from __future__ import annotations

import asyncio
import os
import re
import struct
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import cast

import uvloop

from kourou.protocol.features import FEATURES_FIELD, Feature
from kourou.protocol.message_id import encode_host
from kourou.protocol.record import RecordEncoder

QUEUE_MESSAGES = 1_000_000
"""What each queue seems to hold."""
PULL, GET_MAX_OFFSET = 11, 30
STARTS_OF_SENDS = (b'{"code":310,', b'{"code":320,', b'{"code":10,')
SENDS = (10, 310, 320)
BODY = bytes(ord("a") + at % 26 for at in range(1024))
# Those of loadgen's messages, and what a broker adds.
PROPERTIES = (
    b"KEYS\x01k100000\x02UNIQ_KEY\x017F00000112345678ABCD000000100000\x02WAIT\x01true\x02TAGS\x01TagA\x02"
    b"CLUSTER\x01DefaultCluster\x02MSG_REGION\x01DefaultRegion\x02TRACE_ON\x01true\x02"
)

# Length of the rest; type of the header << 24 | its length.
_HEAD = struct.Struct(">II")
# Code, language, version, opaque.
_BINARY = struct.Struct(">hbhi")
_code = re.compile(rb'"code":(\d+)').search
_opaque = re.compile(rb'"opaque":(\d+)').search
# In a binary header the length of the value, four bytes, stands before it.
_most = re.compile(rb'maxMsgNums(?:":"|.{4})(\d+)', re.DOTALL).search


class Answer:
    """A response, ready but for `opaque`, the length of which the frame's lengths depend on."""

    __slots__ = ("_end", "_starts")

    def __init__(self, fields: str = "", body: bytes = b"") -> None:
        start = b'{"code":0,"flag":1,"language":"JAVA","opaque":'
        self._end = b',"serializeTypeCurrentRPC":"JSON","version":479,"extFields":{%s}}' % fields.encode()
        sizes = [len(start) + digits + len(self._end) for digits in range(11)]
        self._starts = [_HEAD.pack(4 + size + len(body), size) + start for size in sizes]

    def header(self, opaque: bytes) -> bytes:
        """The frame of the answer without its body."""
        return self._starts[len(opaque)] + opaque + self._end


@dataclass(frozen=True, slots=True)
class Pulled:
    """What a pull gets."""

    answer: Answer
    records: bytes


STORED = Answer('"msgId":"7F00000100002A9F0000000000000000","queueId":"0","queueOffset":"0"')
MAX_OFFSET = Answer(f'"offset":"{QUEUE_MESSAGES}"')
# The least offset, and to a heartbeat that pulls may be of more than 32 messages.
DONE = Answer(f'"offset":"0","{FEATURES_FIELD}":"{Feature.LARGE_PULL}"')


@cache
def pulled(most: int) -> Pulled:
    """The first messages of a queue, as many as are asked for."""
    host = encode_host("127.0.0.1", 10911)
    encoder = RecordEncoder("BenchmarkTopic", 0, host)
    records = b"".join(
        b"".join(encoder.parts(BODY, PROPERTIES, offset, offset << 11, 0, 0, host)) for offset in range(most)
    )
    offsets = f'"nextBeginOffset":"{most}","minOffset":"0","maxOffset":"{QUEUE_MESSAGES}"'
    return Pulled(Answer(f'"suggestWhichBrokerId":"0",{offsets}', records), records)


class Ring:
    """The file that sends are written to, over and over."""

    def __init__(self, path: Path, size_bytes: int) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT)
        os.posix_fallocate(self._fd, 0, size_bytes)
        self._size_bytes = size_bytes
        self._at = 0

    def write(self, data: bytes | memoryview) -> None:
        """Hand the bytes to Linux: they are in the page cache on return."""
        if self._at + len(data) > self._size_bytes:
            self._at = 0
        self._at += os.pwrite(self._fd, data, self._at)


class FloorProtocol(asyncio.Protocol):
    """One connection. A request is answered when all of it has come, a send when Linux has all of it."""

    def __init__(self, ring: Ring) -> None:
        self._ring = ring
        self._is_sender = False
        # Of the request under way: how much is still to come, and its answer.
        self._missing_bytes = 0
        self._answers: list[bytes] = []
        # The beginning of a frame whose header has not come as a whole.
        self._cut = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep what answers go to."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """One write to the file and one to the socket, whatever has come."""
        if self._cut:
            data, self._cut = self._cut + data, b""
        size, at, answers = len(data), self._missing_bytes, self._answers
        while at < size:
            if size - at < _HEAD.size:
                break
            length, header = _HEAD.unpack_from(data, at)
            header_end = at + _HEAD.size + (header & 0xFFFFFF)
            if header_end > size:
                break
            if data.startswith(STARTS_OF_SENDS, at + _HEAD.size):
                self._is_sender = True
                answers.append(STORED.header(_opaque(data, at, header_end)[1]))  # type: ignore[index]
            else:
                answers += self._answer(data[at + _HEAD.size : header_end], is_binary=header >> 24 == 1)
            at += 4 + length
        self._cut = data[at:]
        self._missing_bytes = max(0, at - size)
        if self._is_sender:
            self._ring.write(memoryview(data)[:at])
        self._answers = [answers.pop()] if self._missing_bytes else []
        if self._is_sender:
            self._transport.write(b"".join(answers))
        else:
            self._transport.writelines(answers)

    def _answer(self, header: bytes, *, is_binary: bool) -> list[bytes]:
        """The buffers of an answer to anything but a send with a JSON header."""
        if is_binary:
            code, _, _, number = _BINARY.unpack_from(header)
            opaque = b"%d" % number
        else:
            code, opaque = int(_code(header)[1]), _opaque(header)[1]  # type: ignore[index]
        self._is_sender = code in SENDS
        if code == PULL:
            found = pulled(int(_most(header)[1]))  # type: ignore[index]
            return [found.answer.header(opaque), found.records]
        if self._is_sender:
            return [STORED.header(opaque)]
        return [(MAX_OFFSET if code == GET_MAX_OFFSET else DONE).header(opaque)]


async def serve(port: int, ring: Ring) -> None:
    """Until the process is killed."""
    server = await asyncio.get_running_loop().create_server(lambda: FloorProtocol(ring), "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1]), Ring(Path(sys.argv[2]), int(sys.argv[3]))))
