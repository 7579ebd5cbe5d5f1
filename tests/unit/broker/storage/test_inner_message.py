"""Messages that the broker itself stores, and where those with a delay go."""

from __future__ import annotations

from pathlib import Path

import pytest

from kourou.broker.delay.delayed_messages import slot_time
from kourou.broker.delay.deliveries import find_delivered, mark_of
from kourou.broker.delay.timer_processor import recall_handle
from kourou.broker.storage.inner_message import InnerMessage
from kourou.protocol.message import MessageExt
from kourou.protocol.recall_handle import RecallHandle, decode_recall_handle
from kourou.store.log.put_status import PutRefusedError, PutStatus
from tests.unit.broker.admin_kit import AdminBroker, admin_broker
from tests.unit.store.message_stores import BORN_HOST, NOW_MS, read_queue

SCHEDULE = "SCHEDULE_TOPIC_XXXX"
TIMER = "rmq_sys_wheel_timer"


def message(properties: str = "", **fields: int) -> InnerMessage:
    return InnerMessage("T", 1, b"body", properties, NOW_MS, BORN_HOST, **fields)


def stored(broker: AdminBroker, topic: str, queue_id: int) -> list[MessageExt]:
    broker.store.write_and_publish()
    return read_queue(broker.store, topic, queue_id)


async def test_a_message_is_stored_as_it_is(tmp_path: Path) -> None:
    async with admin_broker(tmp_path) as broker:
        received: list[tuple[PutStatus, int, int]] = []
        properties = "TAGS\x01A\x02KEYS\x01k\x02DELAY\x013\x02"
        inner = message(properties, flag=3, reconsume_times=2, prepared_phy_offset=77)
        broker.writer.put_now(inner, lambda *reported: received.append(reported))
        assert not received
        (record,) = stored(broker, "T", 1)
        assert received == [(PutStatus.PUT_OK, record.phy_offset, 0)]
        assert (record.body, record.flag, record.reconsume_times) == (b"body", 3, 2)
        assert record.prepared_transaction_offset == 77
        assert record.raw_properties == properties.encode()
        again = InnerMessage.of(record)
        assert again == message(properties, flag=3, reconsume_times=2)


async def test_a_level_sends_it_to_its_queue(tmp_path: Path) -> None:
    async with admin_broker(tmp_path) as broker:
        broker.writer.put(message("TAGS\x01A\x02DELAY\x013\x02"), None)
        (record,) = stored(broker, SCHEDULE, 2)
        assert record.properties == {"TAGS": "A", "DELAY": "3", "REAL_TOPIC": "T", "REAL_QID": "1"}
        unit = broker.store.queue(SCHEDULE, 2).unit(0)
        assert unit is not None and unit.tags_code == record.store_timestamp + 10_000


@pytest.mark.parametrize("sys_flag", [0x4, 0xC])
async def test_prepared_and_rolled_back_ones_are_not_delayed(tmp_path: Path, sys_flag: int) -> None:
    async with admin_broker(tmp_path) as broker:
        inner = message("DELAY\x013\x02", sys_flag=sys_flag)
        broker.delay(inner)
        assert inner.topic == "T"


async def test_one_that_is_delayed_again_goes_to_its_new_place(tmp_path: Path) -> None:
    async with admin_broker(tmp_path) as broker:
        inner = message("REAL_TOPIC\x01old\x02REAL_QID\x019\x02DELAY\x012", sys_flag=8)
        broker.delay(inner)
        assert (inner.topic, inner.queue_id) == (SCHEDULE, 1)
        assert inner.get_property("REAL_TOPIC") == "T"
        assert inner.properties.count("REAL_TOPIC") == 1


@pytest.mark.parametrize(
    ("properties", "out_ms"),
    [
        ("TIMER_DELAY_SEC\x017\x02TIMER_DELAY_MS\x011\x02", NOW_MS + 6_000),
        ("TIMER_DELAY_MS\x01500\x02TIMER_DELIVER_MS\x011\x02", NOW_MS),
        (f"TIMER_DELIVER_MS\x01{NOW_MS + 2_001}\x02", NOW_MS + 2_000),
        (f"TIMER_DELIVER_MS\x01{NOW_MS + 2_000}\x02", NOW_MS + 1_000),
    ],
)
async def test_a_time_sends_it_to_the_timer_topic(tmp_path: Path, properties: str, out_ms: int) -> None:
    async with admin_broker(tmp_path) as broker:
        inner = message(properties)
        broker.delay(inner)
        assert (inner.topic, inner.queue_id) == (TIMER, 0)
        assert inner.get_property("TIMER_OUT_MS") == str(out_ms)
        assert (inner.get_property("REAL_TOPIC"), inner.get_property("REAL_QID")) == ("T", "1")


async def test_one_that_has_waited_does_not_wait_again(tmp_path: Path) -> None:
    async with admin_broker(tmp_path) as broker:
        inner = message("TIMER_OUT_MS\x011\x02TIMER_DELAY_SEC\x015\x02")
        broker.delay(inner)
        assert inner.topic == "T"


async def test_a_recall_that_comes_too_late_is_refused(tmp_path: Path) -> None:
    async with admin_broker(tmp_path) as broker:
        inner = message(f"TIMER_DEL_UNIQKEY\x01T+ID\x02TIMER_DELIVER_MS\x01{NOW_MS}\x02")
        with pytest.raises(PutRefusedError) as refused:
            broker.writer.put(inner, None)
        assert refused.value.status is PutStatus.WHEEL_TIMER_MSG_ILLEGAL


@pytest.mark.parametrize(("deliver_ms", "slot_ms"), [(5_000, 4_000), (5_001, 5_000), (5_999, 5_000)])
def test_slots_are_emptied_when_they_are_over(deliver_ms: int, slot_ms: int) -> None:
    assert slot_time(deliver_ms, 1_000) == slot_ms


# -- what was delivered ----------------------------------------------------------------------------


async def test_deliveries_are_found_in_the_log(tmp_path: Path) -> None:
    async with admin_broker(tmp_path) as broker:
        writer, log = broker.writer, broker.store.log
        begin = log.max_phy_offset
        for number in range(1, 400):  # over several files
            origin = mark_of(number * 10) if number % 3 == 0 else 0
            text = "DELAY\x012\x02" if number % 2 else "TIMER_OUT_MS\x011\x02"
            writer.put_now(message(f"{text}pad\x01{'x' * 200}\x02", prepared_phy_offset=origin), None)
            broker.store.write_and_publish()
        writer.put_now(message("TRAN_MSG\x01true\x02", prepared_phy_offset=5, sys_flag=8), None)
        broker.store.write_and_publish()
        assert log.max_phy_offset > begin + log.file_bytes
        found = find_delivered(log, begin)
        assert found.timers == {number * 10 for number in range(6, 400, 6)}
        assert found.last_of_level == {2: 3990}
        assert find_delivered(log, log.max_phy_offset).timers == set()


async def test_a_waiting_record_is_no_delivery(tmp_path: Path) -> None:
    """A committed transaction with a delay: the record that waits is made from the half."""
    async with admin_broker(tmp_path) as broker:
        broker.writer.put(message("DELAY\x013\x02", sys_flag=8, prepared_phy_offset=4711), None)
        broker.store.write_and_publish()
        assert find_delivered(broker.store.log, 0).last_of_level == {}


# -- recall handles --------------------------------------------------------------------------------


def test_a_handle_says_what_apaches_says() -> None:
    inner = message("REAL_TOPIC\x01T\x02TIMER_OUT_MS\x015000\x02UNIQ_KEY\x01ID\x02")
    inner.topic = TIMER
    text = recall_handle(inner, "broker-a")
    assert text == "djEgVCBicm9rZXItYSA1MDAxIElE"
    assert decode_recall_handle(text) == RecallHandle("T", "broker-a", 5001, "ID")


def test_only_timers_of_users_have_a_handle() -> None:
    inner = message("REAL_TOPIC\x01T\x02TIMER_OUT_MS\x015000\x02UNIQ_KEY\x01ID\x02")
    assert recall_handle(inner, "broker-a") is None
    inner = message("REAL_TOPIC\x01%RETRY%g\x02TIMER_OUT_MS\x015000\x02UNIQ_KEY\x01ID\x02")
    inner.topic = TIMER
    assert recall_handle(inner, "broker-a") is None


@pytest.mark.parametrize("text", ["", "x", "####", "djEgYQ==", "djIgVCBicm9rZXItYSA1MDAxIElE", "ü"])
def test_what_is_no_handle_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="recall handle is invalid"):
        decode_recall_handle(text)
