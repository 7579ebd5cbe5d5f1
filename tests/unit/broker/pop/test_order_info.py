"""What orderly POP has handed out: one rule of Apache's ConsumerOrderInfoManager at a time."""

from __future__ import annotations

import pytest

from kourou.broker.pop.order_info import IDLE_MS, AckResult, OrderedAck, OrderedPops, OrderKey, stored_table
from kourou.protocol.pop.offset_infos import encode_order_counts
from kourou.store.config_tables import ConsumerOrderInfoTable, dump_table, load_table

KEY = OrderKey("T", "G", 2)
POP_TIME = 1_700_000_000_000
INVISIBLE_MS = 60_000
END_MS = POP_TIME + INVISIBLE_MS

# As fastjson 2 writes the table of a 5.5.0 broker, pretty-printed: keys that are numbers are not quoted.
OF_APACHE = b"""{
\t"orderInfoCount":1,
\t"orderedConsumptionLevel":"QUEUE",
\t"table":{
\t\t"T@G":{
\t\t\t2:{
\t\t\t\t"a":"attempt-1",
\t\t\t\t"cm":2,
\t\t\t\t"i":60000,
\t\t\t\t"l":1700000000005,
\t\t\t\t"o":[100,1,4],
\t\t\t\t"oc":{
\t\t\t\t\t100:1
\t\t\t\t},
\t\t\t\t"ot":{
\t\t\t\t\t104:1700000090000
\t\t\t\t},
\t\t\t\t"popTime":1700000000000
\t\t\t}
\t\t}
\t}
}"""


def pop(pops: OrderedPops, *offsets: int, attempt_id: str | None = "a-1", at: int = POP_TIME) -> str:
    counts = pops.pop(
        KEY,
        attempt_id=attempt_id,
        pop_time=at,
        invisible_time_ms=INVISIBLE_MS,
        offsets=offsets,
        now_ms=at,
    )
    return encode_order_counts(counts)


def ack(pops: OrderedPops, queue_offset: int, *, pop_time: int = POP_TIME) -> OrderedAck:
    return pops.ack(KEY, queue_offset=queue_offset, pop_time=pop_time)


def attempts(pops: OrderedPops, attempt_id: str | None) -> bool:
    entry = pops.entry(KEY)
    assert entry is not None
    return entry.is_attempt(attempt_id)


def test_a_queue_is_blocked_until_everything_is_acknowledged() -> None:
    pops = OrderedPops()
    assert pops.block_end_ms(KEY) is None
    pop(pops, 10, 11, 15)
    assert ack(pops, 11) == OrderedAck(AckResult.DONE, 10)
    assert ack(pops, 10) == OrderedAck(AckResult.DONE, 15)
    assert (pops.block_end_ms(KEY), pops.in_flight(KEY)) == (END_MS, 1)
    assert ack(pops, 15) == OrderedAck(AckResult.DONE, 16)
    assert pops.block_end_ms(KEY) is None


def test_other_queues_groups_and_topics_are_not_blocked() -> None:
    pops = OrderedPops()
    pop(pops, 10)
    for other in (OrderKey("T", "G", 3), OrderKey("T", "H", 2), OrderKey("U", "G", 2)):
        assert pops.block_end_ms(other) is None


def test_a_repeated_attempt_counts_nothing() -> None:
    pops = OrderedPops()
    pop(pops, 10, 11)
    assert attempts(pops, "a-1") and not attempts(pops, "a-2") and not attempts(pops, None)
    assert pop(pops, 10, 11, at=POP_TIME + 1) == "0 2 0"


def test_attempts_without_an_id_are_different_ones() -> None:
    pops = OrderedPops()
    pop(pops, 10, attempt_id=None)
    assert not attempts(pops, None)
    assert pop(pops, 10, attempt_id=None, at=END_MS) == "0 qo2%10 1;0 2 1"


def test_counts_of_messages_that_come_again() -> None:
    pops = OrderedPops()
    assert pop(pops, 10, 11) == "0 2 0"
    assert pop(pops, 10, 11, attempt_id="a-2") == "0 qo2%10 1;0 qo2%11 1;0 2 1"
    assert pop(pops, 10, 11, 12, attempt_id="a-3") == "0 qo2%10 2;0 qo2%11 2;0 2 0"
    assert pop(pops, 12, 13, attempt_id="a-4") == "0 qo2%12 1;0 2 0"


def test_acks_that_change_nothing() -> None:
    pops = OrderedPops()
    assert ack(pops, 99) == OrderedAck(AckResult.OLD)  # Apache's moves the group to 100
    pop(pops, 10, 12)
    assert ack(pops, 9) == OrderedAck(AckResult.OLD)
    assert ack(pops, 11) == OrderedAck(AckResult.NOT_POPPED)
    assert ack(pops, 13) == OrderedAck(AckResult.NOT_POPPED)
    assert ack(pops, 10, pop_time=POP_TIME - 1) == OrderedAck(AckResult.OLD)
    assert ack(pops, 12).result is AckResult.DONE
    assert ack(pops, 12) == OrderedAck(AckResult.OLD)
    assert pops.in_flight(KEY) == 1


def test_a_changed_invisible_time_counts_for_its_message_only() -> None:
    pops = OrderedPops()
    pop(pops, 10, 11)

    def change(queue_offset: int, visible_ms: int, pop_time: int = POP_TIME) -> AckResult:
        return pops.change_invisible_time(
            KEY, queue_offset=queue_offset, pop_time=pop_time, visible_ms=visible_ms
        )

    assert change(10, POP_TIME + 100) is AckResult.DONE
    assert pops.block_end_ms(KEY) == END_MS
    ack(pops, 11)
    assert pops.block_end_ms(KEY) == POP_TIME + 100
    assert change(12, END_MS) is AckResult.NOT_POPPED
    assert change(10, END_MS, pop_time=POP_TIME - 1) is AckResult.OLD
    assert pops.block_end_ms(KEY) == POP_TIME + 100


def test_a_pop_takes_no_more_than_the_bits_of_a_long() -> None:
    with pytest.raises(ValueError, match="1 to 63 messages, not 64"):
        pop(OrderedPops(), *range(64))
    with pytest.raises(ValueError, match="not 0"):
        pop(OrderedPops())


def test_what_is_idle_or_gone_is_dropped() -> None:
    pops = OrderedPops()
    pop(pops, 10)
    assert pops.clean(lambda key: True, POP_TIME + IDLE_MS) == []
    assert pops.clean(lambda key: key.queue_id < 2, POP_TIME) == [KEY]
    pop(pops, 10)
    assert pops.clean(lambda key: True, POP_TIME + IDLE_MS + 1) == [KEY]
    assert len(pops) == 0


def test_a_cleared_queue_is_not_blocked_and_knows_no_acks() -> None:
    pops = OrderedPops()
    pop(pops, 10)
    assert pops.clear(KEY)
    assert not pops.clear(KEY)
    assert ack(pops, 10) == OrderedAck(AckResult.OLD)


def test_a_file_of_apaches_goes_on() -> None:
    pops = OrderedPops()
    pops.load(load_table(OF_APACHE, ConsumerOrderInfoTable).table)
    assert list(pops) == [KEY]
    assert pops.in_flight(KEY) == 2  # 100 and 104
    assert pops.block_end_ms(KEY) == 1_700_000_090_000
    assert attempts(pops, "attempt-1")
    assert ack(pops, 100) == OrderedAck(AckResult.DONE, 104)


def test_the_file_is_apaches() -> None:
    pops = OrderedPops()
    pops.load(load_table(OF_APACHE, ConsumerOrderInfoTable).table)
    lines = [line for line in OF_APACHE.split(b"\n") if b"ordere" not in line and b"orderI" not in line]
    assert dump_table(ConsumerOrderInfoTable(stored_table(pops.entries()))) == b"\n".join(lines)


@pytest.mark.parametrize("invisible", [b"", b'"i":0,', b'"i":null,'])
def test_an_entry_without_an_invisible_time_still_blocks(invisible: bytes) -> None:
    raw = b'{"table":{"T@G":{2:{%b"o":[7],"popTime":1700000000000}}}}' % invisible
    pops = OrderedPops()
    pops.load(load_table(raw, ConsumerOrderInfoTable).table)
    assert pops.block_end_ms(KEY) == END_MS


def test_entries_without_messages_or_group_are_left_out() -> None:
    raw = b'{"table":{"T@G":{2:{"popTime":1}},"T":{0:{"o":[1]}}}}'
    pops = OrderedPops()
    pops.load(load_table(raw, ConsumerOrderInfoTable).table)
    assert len(pops) == 0
