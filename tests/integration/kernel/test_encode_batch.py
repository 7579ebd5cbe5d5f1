"""Batches in encode_sends: they are stored and answered, byte for byte, as without the kernel."""

from __future__ import annotations

import errno
import struct
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kourou.protocol.batch import BatchEntry, encode_batch_entries
from kourou.protocol.codes import SerializeType
from kourou.store.log.put_batch import PutBatch
from kourou.store.log.put_status import PutStatus
from kourou.store.message_store import MessageStore
from kourou.testing.faulty_files import FaultyFiles
from tests.golden.frames import VERSIONS
from tests.integration.kernel.twins import ID, Twins, binary_send, frame, recorded_requests, send

PROPERTIES = f"KEYS\x01k1\x02UNIQ_KEY\x01{ID}\x02TAGS\x01TagA\x02".encode()
WITHOUT_ID = "WAIT\x01true\x02"
WITH_ID = f"UNIQ_KEY\x01{ID}\x02{WITHOUT_ID}"


def entries(*properties: bytes, body: bytes = b"hello") -> bytes:
    return encode_batch_entries(BatchEntry(3, body, raw) for raw in properties)


def batch(body: bytes, code: int = 320, flag: int = 0, **fields: str) -> bytes:
    return frame(send({"m": "true", "i": WITH_ID, **fields}, code=code, flag=flag), body)


def binary_batch(body: bytes, **fields: str) -> bytes:
    header = binary_send({"m": "true", "i": WITH_ID, **fields}, code=320)
    return frame(header, body, SerializeType.ROCKETMQ)


MIXED = entries(PROPERTIES, b"", PROPERTIES, f"UNIQ_KEY\x01{ID}\x02".encode())


@pytest.mark.parametrize("properties", [WITH_ID, WITHOUT_ID, ""])
@pytest.mark.parametrize("code", [310, 320])
def test_an_ordinary_batch_is_taken(twins: Twins, code: int, properties: str) -> None:
    before = twins.taken
    answers = twins.feed(batch(MIXED, code, i=properties) + batch(MIXED, code, e="1") + frame(send()))
    assert answers.count(b'"code":0') == 3
    assert answers.count(b",7F000001") == 6, "each batch is answered with four ids"
    assert twins.taken - before == 3


@pytest.mark.parametrize("properties", [WITH_ID, WITHOUT_ID])
def test_a_batch_with_a_binary_header_is_taken(twins: Twins, properties: str) -> None:
    before = twins.taken
    single = binary_batch(entries(PROPERTIES), i=properties)
    answers = twins.feed(binary_batch(MIXED, i=properties) + single + frame(send()))
    assert answers.count(b",7F000001") == 3
    assert twins.taken - before == 3


def test_a_one_way_batch_is_taken_and_not_answered(twins: Twins) -> None:
    before = twins.taken
    assert twins.feed(batch(MIXED, flag=2)) == b""
    assert twins.taken - before == 1


def test_the_code_of_a_batch_makes_none(twins: Twins) -> None:
    before = twins.taken
    assert b'"code":0' in twins.feed(frame(send(code=320), MIXED))
    assert twins.taken - before == 1


@pytest.mark.parametrize("version", VERSIONS)
def test_batches_of_java_clients_are_taken(twins: Twins, version: str) -> None:
    recorded = recorded_requests(version, 320)
    assert twins.feed_twice(recorded) == len(recorded)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        entries(PROPERTIES)[:-1],
        entries(PROPERTIES) + b"\0" * 19,
        entries(PROPERTIES) + b"\0" * 21,
        entries(PROPERTIES) + b"\0" * 30,
        entries(b"TAGS\x01\x02"),
        entries("TAGS\x01é\x02".encode()),
        entries(b"x\x01y\0"),
        entries(PROPERTIES, b"TRAN_MSG\x01true\x02"),
        struct.pack(">iiiii", 22, 0, 0, 0, -1) + b"\0\0",
        struct.pack(">iiiii", 22, 0, 0, 0, 2**31 - 1) + b"\0\0",
        struct.pack(">iiiii", 22, 0, 0, 0, 0) + b"\xff\xff",
        struct.pack(">iiiii", -5, 0, 0, 0, 0) + b"\0\0",
        struct.pack(">iiiii", 0, 0, 0, 0, 0) + b"\0\0",
    ],
)
def test_what_needs_a_look_is_left_alone(twins: Twins, body: bytes) -> None:
    before = twins.taken
    twins.feed(frame(send()) + batch(body) + batch(MIXED))
    assert twins.taken - before == 1, "what follows it on its connection is left alone too"


@pytest.mark.parametrize("properties", ["UNIQ_KEY\x01a-b\x02", "WAIT\x01false\x02", "DELAY\x013\x02"])
def test_a_batch_with_unusual_properties_takes_the_slow_path(twins: Twins, properties: str) -> None:
    before = twins.taken
    twins.feed(batch(MIXED, i=properties))
    assert twins.taken == before


def test_a_slow_path_batch_gives_up_what_was_collected_of_it(twins: Twins) -> None:
    """Its last message is odd: nothing of the nine before it may stay."""
    before = twins.taken
    odd = entries(*[PROPERTIES] * 9, "KEYS\x01k2 é\x02".encode())
    twins.feed_together([frame(send()) + batch(odd), frame(send()) + batch(MIXED)])
    assert twins.taken - before == 3
    twins.feed_together([batch(odd)])
    twins.assert_same()


def test_a_queue_that_was_never_used_is_made(twins: Twins) -> None:
    before = twins.taken
    twins.feed(batch(MIXED, b="Other", e="2"))
    assert twins.taken - before == 1


def test_a_batch_for_a_topic_with_a_long_name_is_refused_as_always(twins: Twins) -> None:
    topic = "%DLQ%" + "g" * 130
    for broker in twins.brokers:
        assert broker.services.topics.create_in_send_back(topic, 1, 6) is not None
    twins.feed(frame(send({"b": topic})))
    before = twins.taken
    assert b'"code":13' in twins.feed(frame(send({"b": topic})) + batch(MIXED, b=topic))
    assert twins.taken - before == 1


def test_a_batch_that_does_not_fit_into_its_file_is_put_into_the_next(twins: Twins) -> None:
    large = batch(entries(*[PROPERTIES] * 3, body=bytes(10_000)))
    before = twins.taken
    for _ in range(70):  # files of a megabyte
        twins.feed(large)
    assert 60 < twins.taken - before < 70
    twins.assert_same()


def test_a_batch_of_many_small_messages_is_taken(twins: Twins) -> None:
    """Its records have many times the bytes that were sent."""
    before = twins.taken
    answers = twins.feed(frame(send()) + batch(entries(*[b""] * 600, body=b"")) + frame(send()))
    assert answers.count(b",7F000001") == 599
    assert twins.taken - before == 3


@pytest.mark.parametrize(
    ("less", "max_body", "less_record", "is_taken"),
    [(0, 10, 0, True), (1, 10, 0, False), (0, 9, 0, False), (0, 10, 1, False)],
)
def test_there_has_to_be_room(
    twins: Twins, less: int, max_body: int, less_record: int, is_taken: bool
) -> None:
    size = 2 * (88 + 5 + len("TopicTest") + 1 + 2)
    room = (100, 100 + size - less, 5, max_body, size - less_record)
    assert twins.run(twins.brokers[0].count_ordinary([batch(entries(b"", b""))], room)) == is_taken


def test_batch_sends_fail_with_a_failed_write(failing: tuple[Twins, list[FaultyFiles]]) -> None:
    twins, files = failing
    twins.feed(batch(MIXED))
    before = twins.taken
    for one in files:
        one.fail("pwrite", error=errno.ENOSPC, part_of_path="commitlog")
    answers = twins.feed(batch(MIXED) + frame(send()) + batch(MIXED, flag=2) + binary_batch(MIXED))
    assert twins.taken - before == 4
    assert answers.count(PutStatus.SERVICE_NOT_AVAILABLE.remark.encode()) == 3
    assert b'"code":0' in twins.feed(batch(MIXED))
    twins.assert_same()


def test_batch_sends_fail_when_a_sync_takes_too_long(twins: Twins, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer has the ids of all messages."""

    def confirm_late(store: MessageStore, batch: PutBatch) -> None:
        store.publish(batch)
        batch.answer(PutStatus.FLUSH_DISK_TIMEOUT)

    for broker in twins.brokers:
        # Which is asked about batches only, not about sends for which nothing waits.
        monkeypatch.setattr(broker.services.commit_cycle, "may_acknowledge", lambda: True)
        late = partial(confirm_late, broker.services.store)
        monkeypatch.setattr(broker.services.commit_cycle, "_confirm", late)
    before = twins.taken
    answers = twins.feed(batch(MIXED) + frame(send()) + batch(entries(b"")) + binary_batch(MIXED))
    assert twins.taken - before == 4
    assert answers.count(b'"code":10,') == 3
    assert answers.count(b",7F000001") == 6


_VALUES = st.sampled_from(
    [b"", b"a", b"true", b"k1", b"k1 k2", b" ", ID.encode(), "é".encode(), b"a\x01b", b"\xff", b"\0"]
)
_PAIRS = st.tuples(
    st.sampled_from([b"UNIQ_KEY", b"TAGS", b"KEYS", b"x", b"", b"DELAY", b"TRAN_MSG"]),
    st.sampled_from([b"\x01", b""]),
    _VALUES,
)
_PROPERTIES = st.builds(
    lambda pairs, end: b"\x02".join(b"".join(pair) for pair in pairs) + end,
    st.lists(_PAIRS, max_size=5),
    st.sampled_from([b"", b"\x02", b"\x02\x02"]),
)
_ENTRIES = st.builds(
    BatchEntry,
    st.integers(-(2**31), 2**31 - 1),
    st.binary(max_size=60),
    st.one_of(st.just(PROPERTIES), _PROPERTIES),
)


@st.composite
def _bodies(draw: st.DrawFn) -> bytes:
    body = encode_batch_entries(draw(st.lists(_ENTRIES, max_size=5)))
    if body and draw(st.integers(0, 4)) == 0:  # now and then no batch at all
        at = draw(st.integers(0, len(body) - 1))
        body = body[:at] + draw(st.binary(max_size=3)) + body[at + 1 :]
    return body


@given(
    st.lists(_bodies(), min_size=1, max_size=3),
    st.sampled_from(["0", "1", "4", "8", "16"]),
    st.sampled_from([batch, binary_batch]),
)
def test_any_batches_come_out_the_same(
    twins: Twins, bodies: list[bytes], sys_flag: str, encode: Callable[..., bytes]
) -> None:
    twins.feed(b"".join(encode(body, f=sys_flag) for body in bodies) + frame(send()))
