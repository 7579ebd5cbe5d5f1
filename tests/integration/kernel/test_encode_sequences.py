"""Messages of idempotent producers in encode_sends: stored, refused and remembered as without the kernel."""

from __future__ import annotations

import errno
import itertools
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kourou.protocol import layout
from kourou.protocol.batch import BatchEntry, encode_batch_entries
from kourou.protocol.codes import SerializeType
from kourou.protocol.producer_sequence import ProducerOpening
from kourou.store.producers.producer_table import ProducerTable
from kourou.store.producers.sequence_windows import SLOT_BYTES
from kourou.testing.faulty_files import FaultyFiles
from tests.integration.kernel.kernel_kit import FedBroker
from tests.integration.kernel.twins import ID, Twins, binary_send, frame, send

_numbers = itertools.count()
WINDOW = layout.WINDOW_SEQUENCES


def table_of(broker: FedBroker) -> ProducerTable:
    return broker.services.store.producers.table


def opened(twins: Twins, *, allows_gaps: bool = False) -> str:
    """The identity of a new producer of both."""
    producer_id = f"@p{next(_numbers)}"
    for broker in twins.brokers:
        table_of(broker).note_opened(ProducerOpening(producer_id, 0, allows_gaps), 0)
    return f"{producer_id}:0"


def properties(identity: str, sequence: object) -> str:
    return f"UNIQ_KEY\x01{ID}\x02__KOUROU_SEQ\x01{identity}:{sequence}\x02TAGS\x01a\x02"


def one(identity: str, sequence: object, **fields: str) -> bytes:
    return frame(send({"i": properties(identity, sequence), "kourouSequenced": "true", **fields}))


def batch(identity: str, *sequences: int, is_last: bool = False, **fields: str) -> bytes:
    """`is_last`: the sequence is the last property, where clients put it."""
    texts = [properties(identity, sequence) for sequence in sequences]
    if is_last:
        texts = [f"UNIQ_KEY\x01{ID}\x02__KOUROU_SEQ\x01{identity}:{sequence}\x02" for sequence in sequences]
    entries = [BatchEntry(0, b"x", text.encode()) for text in texts]
    body = encode_batch_entries(entries)
    return frame(
        send({"m": "true", "i": "WAIT\x01true\x02", "kourouSequenced": "true", **fields}, code=320), body
    )


def windows(broker: FedBroker) -> dict[tuple[str, int, str], bytes]:
    """What each producer has stored, without the number of the run."""
    table = table_of(broker)
    blocks = table.windows.written_blocks()
    run = slice(layout.WINDOW_RUN * 8, layout.WINDOW_RUN * 8 + 8)
    found = {}
    for topic, queue_id, of_queue in table.queues():
        for identity, slot in of_queue.items():
            at = slot % layout.WINDOW_BLOCK_SLOTS * SLOT_BYTES
            block = blocks[slot // layout.WINDOW_BLOCK_SLOTS]
            window = bytearray(block[at : at + SLOT_BYTES])
            window[run] = bytes(8)
            if any(window):
                found[topic, queue_id, identity] = bytes(window)
    return found


def assert_same_windows(twins: Twins) -> None:
    first, second = twins.brokers
    assert windows(first) == windows(second)
    assert table_of(first).windows.undo == table_of(second).windows.undo == []


@pytest.fixture(autouse=True)
def same_windows(twins: Twins) -> Iterator[None]:
    yield
    assert_same_windows(twins)


def test_the_kernel_takes_new_messages_of_a_producer_that_it_knows(twins: Twins) -> None:
    identity = opened(twins)
    twins.feed(one(identity, 0))  # the first to a queue needs a window
    before = twins.taken
    answers = twins.feed(b"".join(one(identity, sequence) for sequence in (1, 3, 2)))
    header = binary_send({"i": properties(identity, 4), "kourouSequenced": "true"})
    twins.feed(frame(header, b"x", SerializeType.ROCKETMQ))
    assert answers.count(b'"code":0') == 3
    assert twins.taken - before == 4
    for broker in twins.brokers:
        assert table_of(broker).last_sequences(identity[:-2], "TopicTest") == {0: 4}


def test_a_repeat_is_not_stored(twins: Twins) -> None:
    identity = opened(twins)
    twins.feed(one(identity, 0))
    twins.feed(one(identity, 0))
    twins.feed(one(identity, 1) + one(identity, 1) + one(identity, 1))
    assert stored(twins.brokers[0], identity) == [0, 1]


def stored(broker: FedBroker, identity: str) -> list[int]:
    """The sequences that the log has of a producer."""
    values = [piece.partition(b"\x02")[0] for piece in broker.log_bytes(0).split(b"__KOUROU_SEQ\x01")[1:]]
    own = [value.decode().rpartition(":") for value in values]
    return sorted(int(sequence) for of, _, sequence in own if of == identity)


@pytest.mark.parametrize(
    ("value", "code"),
    [
        ("@unknown:0:0", 29100),
        ("{id}:1:0", 29102),
        ("{id}:0:5000", 29104),
        ("{id}:0:-1", 13),
        ("{id}:0:x", 13),
        ("{id}:0:01", 13),
        ("{id}:0", 13),
        ("{id}:0:", 13),
        (":0", 13),
        ("{id}:0:9999999999999999999", 13),
        ("@" + "n" * 200 + ":0:1", 13),
        ("ä:0:1", 13),
    ],
)
def test_what_is_refused(twins: Twins, value: str, code: int) -> None:
    identity = opened(twins)
    twins.feed(one(identity, 0))
    text = f"UNIQ_KEY\x01{ID}\x02__KOUROU_SEQ\x01{value.format(id=identity[:-2])}\x02"
    answer = twins.feed(one(identity, 1) + frame(send({"i": text, "kourouSequenced": "true"})))
    assert answer.count(b'"code":0') == 1
    assert answer.count(b'"code":%d,' % code) + answer.count(b'"code":%d}' % code) == 1


def test_below_the_window(twins: Twins) -> None:
    identity = opened(twins)
    for sequence in (0, WINDOW, 2 * WINDOW):
        twins.feed(one(identity, sequence))
    assert b'"code":29103' in twins.feed(one(identity, WINDOW))
    assert b'"code":0' in twins.feed(one(identity, WINDOW + 1))


def test_a_fenced_producer(twins: Twins) -> None:
    identity = opened(twins)
    twins.feed(one(identity, 0))
    for broker in twins.brokers:
        table_of(broker).note_opened(ProducerOpening(identity[:-2], 1, False), 0)
    assert b'"code":29101' in twins.feed(one(identity, 1))
    before = twins.taken
    assert b'"code":0' in twins.feed(one(identity[:-1] + "1", 1))
    assert twins.taken - before == 1, "the new program goes on in the windows of the old one"


@pytest.mark.parametrize("fields", [{"kourouSequenced": "false"}, {"kourouSequenced": None}])
def test_a_property_without_the_field_does_not_count(twins: Twins, fields: dict[str, str]) -> None:
    identity = opened(twins)
    twins.feed(one(identity, 0))
    ends = twins.brokers[0].services.store.log.max_phy_offset
    answers = twins.feed(one(identity, 0, **fields) + batch(identity, 0, 1, **fields))
    assert answers.count(b'"code":0') == 2
    assert b"__KOUROU_SEQ" not in twins.brokers[0].log_bytes(ends)


def test_a_second_property_is_left_to_the_slow_path(twins: Twins) -> None:
    identity = opened(twins)
    twins.feed(one(identity, 0))
    before = twins.taken
    text = properties(identity, 1) + f"__KOUROU_SEQ\x01{identity}:2\x02"
    twins.feed(frame(send({"i": text, "kourouSequenced": "true"})))
    assert twins.taken == before


def test_batches(twins: Twins) -> None:
    identity = opened(twins)
    twins.feed(batch(identity, 0, 1, 2))
    before = twins.taken
    twins.feed(batch(identity, 3, 4) + batch(identity, 6, 8) + one(identity, 9))
    assert twins.taken - before == 3
    twins.feed(batch(identity, 4, 5, 6))  # of which one is new
    twins.feed(batch(identity, 10, 10))
    twins.feed(batch(identity, 12, 11))
    assert stored(twins.brokers[0], identity) == [0, 1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12]


def test_batches_of_other_forms_than_those_of_clients(twins: Twins) -> None:
    identity = opened(twins)
    last = {"is_last": True}
    twins.feed(batch(identity, 0, **last))
    whole = batch(identity, 1, 2, 3, **last)
    for wrong in (
        whole.replace(b":0:2\x02", b":0:3\x02"),  # one twice
        whole.replace(b":0:2\x02", b":0:x\x02"),
        whole.replace(b":0:2\x02", b":1:2\x02"),  # of another epoch
        whole.replace(b"\x02__KOUROU_SEQ", b"x__KOUROU_SEQ"),  # part of the property before
    ):
        twins.feed(wrong)
        assert_same_windows(twins)
    twins.feed(whole)
    assert set(stored(twins.brokers[0], identity)) >= {0, 1, 2, 3}


def test_the_kernel_continues_what_the_slow_path_has_noted_in_the_same_cycle(twins: Twins) -> None:
    identity = opened(twins)
    twins.feed(one(identity, 0))
    before = twins.taken
    slow = frame(send({"i": f"UNIQ_KEY\x01{ID}\x02TAGS\x01ä\x02"}))
    twins.feed_together(
        [
            one(identity, 1) + slow + one(identity, 2) + one(identity, 3),
            one(identity, 4) + batch(identity, 5, 6),
        ]
    )
    assert twins.taken - before == 3, "1, 4 and the batch"
    for sequence in (2, 3, 4):
        twins.feed(one(identity, sequence))
    assert stored(twins.brokers[0], identity) == [0, 1, 2, 3, 4, 5, 6]


def test_a_refused_message_leaves_the_one_before_it_to_be_found(twins: Twins) -> None:
    identity = opened(twins)
    twins.feed(one(identity, 0))
    twins.feed(one(identity, 1))
    too_long = properties(identity, 2) + f"a\x01{'x' * layout.MAX_PROPERTIES_BYTES}\x02"
    refused = twins.feed(frame(send({"i": too_long, "kourouSequenced": "true"})))
    assert b'"code":0' not in refused
    for broker in twins.brokers:
        slot = table_of(broker).slots["TopicTest"][0][identity]
        begin = table_of(broker).windows.search_from(slot, 1)
        assert begin is not None and f"{identity}:1\x02".encode() in broker.log_bytes(begin)
    assert b'"code":0' in twins.feed(one(identity, 2))


def test_a_batch_that_could_not_be_recognized_again_is_refused(twins: Twins) -> None:
    identity = opened(twins)
    twins.feed(one(identity, 0))
    answer = twins.feed(batch(identity, *range(1, WINDOW + 2)))
    assert b'"code":13' in answer and b"several batches" in answer
    assert b'"code":0' in twins.feed(batch(identity, *range(1, WINDOW // 2)))


def test_one_of_a_batch_is_refused(twins: Twins) -> None:
    identity = opened(twins)
    twins.feed(one(identity, 0))
    assert b'"code":29104' in twins.feed(batch(identity, 1, 2, 5_000))
    assert b'"code":0' in twins.feed(one(identity, 1))


def test_a_queue_has_to_be_named(twins: Twins) -> None:
    answer = twins.feed(one(opened(twins), 0, e="-1"))
    assert b'"code":13' in answer and b"must name its queue" in answer


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.lists(
            st.tuples(
                st.integers(0, 1),  # producer
                st.integers(0, 1),  # queue
                st.one_of(st.integers(-3, 5), st.sampled_from([-WINDOW, WINDOW - 1, WINDOW, WINDOW + 1])),
                st.integers(0, 3),  # messages of a batch
                st.booleans(),  # whether their sequences come last
            ),
            min_size=1,
            max_size=6,
        ),
        max_size=12,
    )
)
def test_any_run_of_sends(twins: Twins, cycles: list[list[tuple[int, int, int, int, bool]]]) -> None:
    identities = [opened(twins), opened(twins, allows_gaps=True)]
    highs: dict[tuple[int, int], int] = {}
    for cycle in cycles:
        frames = []
        for producer, queue_id, step, count, is_last in cycle:
            first = max(0, highs.get((producer, queue_id), 0) + step)
            highs[producer, queue_id] = first + max(0, count - 1)
            identity, queue = identities[producer], str(queue_id)
            if count:
                sequences = range(first, first + count)
                frames.append(batch(identity, *sequences, is_last=is_last, e=queue))
            else:
                frames.append(one(identity, first, e=queue))
        twins.feed(b"".join(frames))
        assert_same_windows(twins)


def test_what_could_not_be_written_is_taken_back(failing: tuple[Twins, list[FaultyFiles]]) -> None:
    twins, files = failing
    identity = opened(twins)
    twins.feed(frame(send()))
    twins.feed(one(identity, 0))
    before = [windows(broker) for broker in twins.brokers]
    for each in files:
        each.fail("pwrite", error=errno.ENOSPC, part_of_path="commitlog")
    answers = twins.feed(one(identity, 1) + batch(identity, 2, 3))
    assert b'"code":0' not in answers
    assert [windows(broker) for broker in twins.brokers] == before
    for each in files:
        each.heal()
    assert twins.feed(one(identity, 1) + batch(identity, 2, 3)).count(b'"code":0') == 2
    assert_same_windows(twins)
