"""Large bodies in encode_sends: written from where they were received; the log is that of Python alone."""

from __future__ import annotations

import errno
from types import ModuleType
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kourou.broker.send.fast_send_path import FastSendPath
from kourou.protocol.batch import BatchEntry, encode_batch_entries
from kourou.testing.faulty_files import FaultyFiles
from tests.integration.kernel.kernel_kit import ROOM
from tests.integration.kernel.twins import ID, Twins, frame, send

LARGE = 8 * 1024
PROPERTIES = f"KEYS\x01k1\x02UNIQ_KEY\x01{ID}\x02TAGS\x01TagA\x02".encode()
MORE_THAN_A_PASS = 1_100_000


def body(size: int, seed: int = 0) -> bytes:
    """No two pieces of it are the same."""
    return b"".join((seed << 24 | n).to_bytes(4, "big") for n in range(-(-size // 4)))[:size]


def batch(*bodies: bytes, raw: bytes = PROPERTIES, opaque: int = 7) -> bytes:
    header = send({"m": "true"}, code=320, opaque=opaque)
    return frame(header, encode_batch_entries(BatchEntry(0, one, raw) for one in bodies))


def parts_of(twins: Twins, data: bytes) -> list[memoryview]:
    """The records that the kernel makes of `data`; nothing is put."""
    broker = twins.brokers[0]

    async def encode() -> list[memoryview]:
        senders = [broker.sender(data)]
        encoded = cast(FastSendPath, broker._fast_sends)._encode(senders, ROOM)
        assert encoded is not None
        return [memoryview(part) for part in encoded[2]]

    return twins.run(encode())


@pytest.mark.parametrize("size", [LARGE - 1, LARGE, LARGE + 1, 60_000])
def test_a_body_around_the_limit(twins: Twins, size: int) -> None:
    before = twins.taken
    assert b'"code":0' in twins.feed(frame(send(), body(size)))
    assert twins.taken - before == 1


def test_small_and_large_ones_in_turns(twins: Twins) -> None:
    before = twins.taken
    sizes = [5, LARGE, LARGE, 0, 40_000, LARGE - 1, 1, 60_000]
    data = b"".join(frame(send({"e": str(n % 2)}, opaque=n), body(size, n)) for n, size in enumerate(sizes))
    assert twins.feed(data).count(b'"code":0') == len(sizes)
    assert len(set(twins.feed_together([data, data[: len(data) // 2], data]))) == 3
    assert twins.taken - before > 2 * len(sizes)


def test_a_large_body_is_not_copied(twins: Twins) -> None:
    data = frame(send(), b"small") + frame(send(), body(LARGE)) + frame(send(), body(LARGE - 1))
    head, large, tail = parts_of(twins, data)
    assert large.obj is data and large == body(LARGE)
    assert head.obj is tail.obj
    (whole,) = parts_of(twins, frame(send(), body(LARGE - 1)) * 3)
    assert len(whole) > 3 * (LARGE - 1)


def test_parts_of_a_frame_that_came_bit_by_bit(twins: Twins) -> None:
    data = b"".join(frame(send(opaque=n), body(60_000, n)) for n in range(4))
    for step in (10_000, 50_001, 65_536, 128 * 1024):
        parts = [data[at : at + step] for at in range(0, len(data), step)]
        assert twins.feed_together([parts])[0].count(b'"code":0') == 4


def test_large_reads_are_written_from_where_they_were_received(twins: Twins) -> None:
    """What a read of 128 KiB begins goes on in rooms: frames that come whole, in parts, and small ones."""
    sizes = [60_000, 10_000, 5, 0, 60_000, 60_000, LARGE, 30_000] * 6
    data = b"".join(frame(send(opaque=n), body(size, n)) for n, size in enumerate(sizes))
    before = twins.taken
    for step in (150_000, 200_003, 999_999):
        parts = [data[at : at + step] for at in range(0, len(data), step)]
        assert twins.feed_together([parts])[0].count(b'"code":0') == len(sizes)
    assert twins.taken - before > len(sizes), "at the end of a file of the log, Python takes the rest"


def test_what_is_no_send_ends_large_reads(twins: Twins) -> None:
    large = b"".join(frame(send(opaque=n), body(60_000, n)) for n in range(9))
    odd = frame(send({"i": f"UNIQ_KEY\x01{ID}\x02WAIT\x01false\x02"}), body(60_000, 9))
    other = frame(send({"a": "x"}, code=99), body(60_000, 10))
    for between in (odd, other, b""):
        data = large + between + large
        parts = [data[at : at + 140_000] for at in range(0, len(data), 140_000)]
        assert twins.feed_together([parts])[0].count(b'"opaque":') == 18 + bool(between)


def test_batches_with_large_messages(twins: Twins) -> None:
    before = twins.taken
    mixed = batch(b"small", body(LARGE), body(LARGE, 1), b"", body(20_000, 2), b"last")
    assert twins.feed(mixed + frame(send(), body(LARGE, 3)) + mixed).count(b'"code":0') == 3
    assert twins.taken - before == 3


def test_of_a_batch_that_needs_a_look_nothing_is_left(twins: Twins) -> None:
    """Its first messages were encoded before."""
    odd = BatchEntry(0, b"x", b"TRAN_MSG\x01true\x02")
    entries = encode_batch_entries([BatchEntry(0, body(LARGE), PROPERTIES), odd])
    before = twins.taken
    data = frame(send(), body(LARGE, 1)) + frame(send({"m": "true"}, code=320), entries)
    answers = twins.feed(data + frame(send(), body(LARGE, 2)))
    assert answers.count(b'"code":0') == 2
    assert twins.taken - before == 1


def test_more_than_a_commit_cycle_writes_at_once(twins: Twins) -> None:
    data = b"".join(frame(send(opaque=n), body(60_000, n)) for n in range(MORE_THAN_A_PASS // 60_000))
    assert len(twins.feed_together([data, data, frame(send(), b"x")])) == 3


def test_a_write_that_fails_in_the_middle(failing: tuple[Twins, list[FaultyFiles]]) -> None:
    twins, files = failing
    twins.feed(frame(send()))
    data = b"".join(frame(send(opaque=n), body(20_000, n)) for n in range(3))
    for one in files:
        one.fail("pwrite", error=errno.ENOSPC, part_of_path="commitlog")
    assert b'"code":0' not in twins.feed(data)
    assert twins.feed(data).count(b'"code":0') == 3
    twins.assert_same()


def test_wrong_pieces_are_refused(kernel: ModuleType, twins: Twins) -> None:
    data = frame(send(), body(LARGE))
    with pytest.raises(ValueError, match="a piece must be"):
        kernel.encode_sends(
            [(None, [(data, 0, len(data) + 1)], bytes(8))],
            cast(FastSendPath, twins.brokers[0]._fast_sends)._setup,
            *({}, {}, None, None, {}, ({}, [], 1), 0, 0, 0, 0, 0),
        )


@given(sizes=st.lists(st.one_of(st.integers(0, 300), st.integers(LARGE - 2, LARGE + 600)), max_size=12))
def test_any_sizes(twins: Twins, sizes: list[int]) -> None:
    data = b"".join(frame(send(opaque=n), body(size, n)) for n, size in enumerate(sizes))
    cut = len(data) // 2
    twins.feed_together([frame(send()) + data, [frame(send()) + data[:cut], data[cut:]]])
