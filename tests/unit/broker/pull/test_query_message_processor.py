"""QUERY_MESSAGE and VIEW_MESSAGE_BY_ID."""

from __future__ import annotations

import asyncio
from pathlib import Path
from threading import Event, get_ident

import pytest

from kourou.broker.pull import query_message_processor
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.headers import (
    QueryMessageRequestHeader,
    QueryMessageResponseHeader,
    ViewMessageRequestHeader,
)
from kourou.protocol.record import decode_record, decode_records
from kourou.store.index import index_walk
from kourou.store.index.index_walk import IndexWalk
from tests.unit.broker.admin_kit import AdminBroker, admin_broker
from tests.unit.store.message_stores import NOW_MS

LATER_MS = NOW_MS + 3_600_000


def _query(key: str, **fields: object) -> QueryMessageRequestHeader:
    known = {"topic": "T", "key": key, "max_num": 32, "begin_timestamp": 0, "end_timestamp": LATER_MS}
    return QueryMessageRequestHeader(**{**known, **fields})  # type: ignore[arg-type]


@pytest.mark.parametrize("is_cold", [False, True])
async def test_records_of_a_key_come_as_stored(tmp_path: Path, is_cold: bool) -> None:
    async with admin_broker(tmp_path) as broker:
        first, second = broker.put(b"one", b"two", properties="KEYS\x01order-1\x02")
        broker.put(b"other", properties="KEYS\x01order-2\x02")
        if is_cold:
            broker.go_cold()
        answer = await broker.tool().call(RequestCode.QUERY_MESSAGE, _query("order-1"))
        messages = decode_records(answer.body)
        assert [message.body for message in messages] == [b"one", b"two"]
        assert [message.phy_offset for message in messages] == [first, second]
        header = answer.header(QueryMessageResponseHeader)
        assert header.index_last_update_phyoffset > second
        assert header.index_last_update_timestamp == NOW_MS + 2000
        assert broker.disk_jobs >= is_cold


async def test_unknown_key_is_22_in_apaches_words(tmp_path: Path) -> None:
    async with admin_broker(tmp_path) as broker:
        broker.put(b"one", properties="KEYS\x01order-1\x02")
        answer = await broker.tool().call(RequestCode.QUERY_MESSAGE, _query("no-such-key"))
        assert answer.code == ResponseCode.QUERY_NOT_FOUND
        assert answer.remark == "can not find message, maybe time range not correct"
        header = answer.header(QueryMessageResponseHeader)
        assert (header.index_last_update_timestamp, header.index_last_update_phyoffset) == (0, 0)


async def test_time_range_counts(tmp_path: Path) -> None:
    async with admin_broker(tmp_path) as broker:
        broker.put(b"one", properties="KEYS\x01k\x02")
        asked = _query("k", begin_timestamp=NOW_MS + 60_000)
        code, _ = await broker.tool().refused(RequestCode.QUERY_MESSAGE, asked)
        assert code == ResponseCode.QUERY_NOT_FOUND


async def test_max_num_is_of_the_caller_but_for_unique_ids(tmp_path: Path) -> None:
    async with admin_broker(tmp_path, default_query_max_num=3) as broker:
        broker.put(*[b"x"] * 5, properties="UNIQ_KEY\x01u1\x02KEYS\x01k\x02")
        tool = broker.tool()
        by_key = await tool.call(RequestCode.QUERY_MESSAGE, _query("k", max_num=2))
        by_id = await tool.call(RequestCode.QUERY_MESSAGE, _query("u1", max_num=2, unique_key_query=True))
        assert len(decode_records(by_key.body)) == 2
        assert len(decode_records(by_id.body)) == 3


async def test_answer_is_no_larger_than_clients_take(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query_message_processor, "_MAX_BODY_BYTES", 25_000)
    async with admin_broker(tmp_path) as broker:
        broker.put(*[b"x" * 10_000] * 4, properties="KEYS\x01k\x02")
        answer = await broker.tool().call(RequestCode.QUERY_MESSAGE, _query("k"))
        assert len(decode_records(answer.body)) == 2


async def test_without_an_index_nothing_is_found(tmp_path: Path) -> None:
    async with admin_broker(tmp_path) as broker:
        broker.reopen(index_enable=False)
        broker.put(b"one", properties="KEYS\x01k\x02")
        code, _ = await broker.tool().refused(RequestCode.QUERY_MESSAGE, _query("k"))
        assert code == ResponseCode.QUERY_NOT_FOUND
        broker.store_kit.is_checked = False


@pytest.mark.parametrize("is_cold", [False, True])
async def test_message_is_viewed_by_its_place(tmp_path: Path, is_cold: bool) -> None:
    async with admin_broker(tmp_path) as broker:
        _, second = broker.put(b"one", b"two")
        if is_cold:
            broker.go_cold()
        answer = await broker.tool().call(
            RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader(phy_offset=second)
        )
        assert answer.code == ResponseCode.SUCCESS
        assert decode_record(answer.body).body == b"two"
        assert answer.ext_fields is None


@pytest.mark.parametrize("is_cold", [False, True])
@pytest.mark.parametrize("phy_offset", [7, -1, 1 << 40, 65_530])
async def test_place_without_a_record_is_an_error(tmp_path: Path, phy_offset: int, is_cold: bool) -> None:
    async with admin_broker(tmp_path) as broker:
        broker.put(b"one", b"two")
        if is_cold:
            broker.go_cold()
        refused = await broker.tool().refused(
            RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader(phy_offset=phy_offset)
        )
        assert refused == (1, f"can not find message by the offset, {phy_offset}")


async def test_damaged_record_is_not_given_out(tmp_path: Path) -> None:
    async with admin_broker(tmp_path) as broker:
        (place,) = broker.put(b"body of a message")
        _flip_last_body_byte(broker, place)
        code, _ = await broker.tool().refused(
            RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader(phy_offset=place)
        )
        assert code == ResponseCode.SYSTEM_ERROR


async def test_file_may_be_deleted_while_a_record_is_read(tmp_path: Path) -> None:
    async with admin_broker(tmp_path) as broker:
        (place,) = broker.put(b"old")
        broker.put(*[b"x" * 20_000] * 6)
        broker.go_cold()
        tool = broker.tool()
        tool.start(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader(phy_offset=place))
        broker.store.log.delete_first()
        await broker.tasks.wait_idle(5)
        (answer,) = tool.received()
        assert decode_record(answer.body).body == b"old"
        broker.store_kit.is_checked = False


async def test_file_stays_open_for_a_thread_whose_request_was_given_up(tmp_path: Path) -> None:
    async with admin_broker(tmp_path) as broker:
        (place,) = broker.put(b"old")
        broker.go_cold()
        gate = Event()
        threads = [broker.disk.run(gate.wait, 5) for _ in range(4)]
        busy = [asyncio.ensure_future(thread) for thread in threads]
        log_file = broker.store.log.log_files[0]
        broker.tool().start(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader(phy_offset=place))
        await asyncio.sleep(0)
        await broker.tasks.stop()
        assert log_file._pins == 1
        gate.set()
        await asyncio.gather(*busy)
        async with asyncio.timeout(5):
            while log_file._pins:  # noqa: ASYNC110  what is waited for is a callback of the code under test
                await asyncio.sleep(0)


def _flip_last_body_byte(broker: AdminBroker, place: int) -> None:
    log_file = broker.store.log.log_files[0]
    raw = log_file.file.pread(400, place)
    at = raw.index(b"body of a message")
    log_file.file.pwrite(b"B", place + at)
    broker.store_kit.is_checked = False


async def test_a_key_that_all_messages_share_is_searched_in_a_disk_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns: list[int] = []
    walk_on = IndexWalk.walk_on

    def watched(walk: IndexWalk) -> None:
        turns.append(get_ident())
        walk_on(walk)

    monkeypatch.setattr(IndexWalk, "walk_on", watched)
    monkeypatch.setattr(index_walk, "_TURN_ENTRIES", 3)
    async with admin_broker(tmp_path) as broker:
        broker.put(*[b"x"] * 10, properties="KEYS\x01k\x02")
        asked = _query("k", end_timestamp=NOW_MS + 1000)
        answer = await broker.tool().call(RequestCode.QUERY_MESSAGE, asked)
        assert len(decode_records(answer.body)) == 2
        assert len(turns) >= 4 and get_ident() not in turns


async def test_queries_wait_for_each_other_and_not_without_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query_message_processor, "_MAX_WAITING", 1)
    async with admin_broker(tmp_path) as broker:
        broker.put(b"one", properties="KEYS\x01k\x02")
        first = asyncio.ensure_future(broker.tool().call(RequestCode.QUERY_MESSAGE, _query("k")))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        code, _ = await broker.tool().refused(RequestCode.QUERY_MESSAGE, _query("k"))
        assert code == ResponseCode.SYSTEM_BUSY
        assert (await first).code == 0
        assert (await broker.tool().call(RequestCode.QUERY_MESSAGE, _query("k"))).code == 0
