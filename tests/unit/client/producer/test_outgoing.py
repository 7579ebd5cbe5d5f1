"""Which messages travel together."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kourou.client.producer.outgoing import entry_bytes, plan_batches
from kourou.protocol.batch import batch_problem, encode_batch
from kourou.protocol.message import Message


def test_each_topic_and_each_waiting_mode_has_batches_of_its_own() -> None:
    messages = [
        Message("A", b"1"),
        Message("B", b"2"),
        Message("A", b"3", wait_store_msg_ok=False),
        Message("A", b"4"),
        Message("B", b"5"),
    ]
    assert plan_batches(messages, 10_000) == [[0, 3], [1, 4], [2]]
    assert plan_batches([], 10_000) == []


def test_delayed_messages_replies_and_retries_go_alone() -> None:
    reply = Message("A", b"3")
    reply.put_property("MSG_TYPE", "reply")
    messages = [
        Message("A", b"1"),
        Message("A", b"2", delay_time_level=3),
        reply,
        Message("A", b"4", deliver_time_ms=10**12),
        Message("%RETRY%g", b"5"),
        Message("%RETRY%g", b"6"),
        Message("A", b"7"),
    ]
    assert plan_batches(messages, 10_000) == [[0, 6], [1], [2], [3], [4], [5]]


def test_a_message_larger_than_a_batch_goes_alone() -> None:
    messages = [Message("A", b"x"), Message("A", b"y" * 5_000), Message("A", b"z")]
    assert plan_batches(messages, 1_000) == [[0], [1], [2]]


TEXTS = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), min_size=1)
BODIES = st.binary(min_size=1, max_size=300)


@given(st.lists(st.tuples(st.sampled_from(["A", "B"]), BODIES, TEXTS)), st.integers(200, 2_000))
def test_every_message_is_in_one_batch_and_no_batch_is_too_large(
    parts: list[tuple[str, bytes, str]], limit: int
) -> None:
    messages = []
    for topic, body, value in parts:
        message = Message(topic, body)
        message.put_property("p", value)
        messages.append(message)
    plan = plan_batches(messages, limit)
    assert sorted(index for batch in plan for index in batch) == list(range(len(messages)))
    for batch in plan:
        assert batch == sorted(batch)
        part = [messages[index] for index in batch]
        assert batch_problem(part) is None
        for message in part:
            message.put_property("UNIQ_KEY", "0" * 56)
        assert len(encode_batch(part)) <= limit or len(part) == 1
        assert all(entry_bytes(message) >= len(encode_batch([message])) for message in part)
