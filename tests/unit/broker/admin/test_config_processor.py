"""Configuration, runtime info and housekeeping on request."""

from __future__ import annotations

import json
import logging
import time
from pathlib import Path

import pytest

from kourou.broker.admin.runtime_info import bytes_text, runtime_text
from kourou.protocol.bodies import KVTable, decode_body
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import decode_command
from kourou.protocol.frame import FrameDecoder
from kourou.protocol.headers import GetBrokerConfigResponseHeader
from tests.golden.frames import recorded_frames
from tests.unit.broker.admin_kit import AdminBroker, admin_broker
from tests.unit.broker.tables_kit import Tables
from tests.unit.store.message_stores import NOW_MS, put

# -- configuration ---------------------------------------------------------------------------------


async def test_configuration_has_every_key_and_a_version(tmp_path: Path) -> None:
    async with admin_broker(tmp_path) as broker:
        answer = await broker.tool().call(RequestCode.GET_BROKER_CONFIG)
        lines = answer.body.decode().splitlines()
        assert "brokerName=broker-a" in lines
        assert "fileReservedTime=72" in lines
        version = json.loads(answer.header(GetBrokerConfigResponseHeader).version)
        assert version == {"counter": 0, "stateVersion": 0, "timestamp": NOW_MS}


async def test_change_is_in_force_and_makes_a_new_version(tmp_path: Path) -> None:
    async with admin_broker(tmp_path) as broker:
        tool = broker.tool()
        changed = await tool.call(RequestCode.UPDATE_BROKER_CONFIG, body=b"fileReservedTime=48\n")
        assert (changed.code, changed.remark) == (0, None)
        assert broker.config.file_reserved_time == 48
        answer = await tool.call(RequestCode.GET_BROKER_CONFIG)
        assert json.loads(answer.header(GetBrokerConfigResponseHeader).version)["counter"] == 1


async def test_changed_keys_that_are_not_in_force_are_named_in_the_remark(tmp_path: Path) -> None:
    async with admin_broker(tmp_path) as broker:
        body = (
            b"listenPort=10911\nfileReservedTime=48\nmessageDelayLevel=1s 5s\nosPageCacheBusyTimeOutMills=9\n"
        )
        changed = await broker.tool().call(RequestCode.UPDATE_BROKER_CONFIG, body=body)
        effect = "listenPort, messageDelayLevel take effect at the next start of the server"
        assert changed.code == 0 and changed.remark is not None and changed.remark.endswith(f"; {effect}")
        assert changed.remark.startswith("osPageCacheBusyTimeOutMills has no effect: ")


async def test_keys_on_the_black_list_are_refused(tmp_path: Path) -> None:
    async with admin_broker(tmp_path) as broker:
        tool = broker.tool()
        code = RequestCode.UPDATE_BROKER_CONFIG
        body = b"fileReservedTime=48\nbrokerConfigPath=/elsewhere\n"
        assert await tool.refused(code, body=body) == (16, "Can not update config in black list.")
        assert broker.config.file_reserved_time == 72


@pytest.mark.parametrize("body", [b"fileReservedTime=soon\n", b"a=\xff\n"])
async def test_bad_values_are_refused(tmp_path: Path, body: bytes) -> None:
    async with admin_broker(tmp_path) as broker:
        code, remark = await broker.tool().refused(RequestCode.UPDATE_BROKER_CONFIG, body=body)
        assert code == 1 and remark


async def test_an_unknown_key_is_rejected_with_the_nearest(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with admin_broker(tmp_path) as broker:
        tool = broker.tool()
        body = b"fileReservedTime=48\nflushDiskTyp=SYNC_FLUSH\n"
        with caplog.at_level(logging.INFO):
            refused = await tool.refused(RequestCode.UPDATE_BROKER_CONFIG, body=body)
        assert refused == (29, "unknown key flushDiskTyp; did you mean flushDiskType?")
        assert broker.config.file_reserved_time == 72 and "configuration changed" not in caplog.text
        # A name server's: mqadmin may change one key everywhere.
        assert (await tool.call(RequestCode.UPDATE_BROKER_CONFIG, body=b"clusterTest=true\n")).code == 0


async def test_empty_change_changes_nothing(tmp_path: Path) -> None:
    async with admin_broker(tmp_path) as broker:
        before = broker.config
        assert (await broker.tool().call(RequestCode.UPDATE_BROKER_CONFIG)).code == 0
        assert broker.config is before


# -- runtime info ----------------------------------------------------------------------------------


async def _info(broker: AdminBroker) -> dict[str, str]:
    return (await broker.tool().ask(RequestCode.GET_BROKER_RUNTIME_INFO, KVTable)).table


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
async def test_runtime_info_has_every_key_of_apache(tmp_path: Path, version: str) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "delayOffset.json").write_text('{"offsetTable":{1:4,3:2,17:0,18:0}}')
    async with admin_broker(tmp_path) as broker:
        ours = set(await _info(broker))
        assert {_without_path(key) for key in _golden_keys(version)} <= {_without_path(key) for key in ours}


def _golden_keys(version: str) -> set[str]:
    keys: set[str] = set()
    for recorded in recorded_frames(version):
        if recorded.type == "response" and recorded.request_code == RequestCode.GET_BROKER_RUNTIME_INFO:
            (frame,) = FrameDecoder().feed(recorded.frame)
            keys |= set(decode_body(decode_command(frame).body, KVTable).table)
    assert keys
    return keys


def _without_path(key: str) -> str:
    return key.partition("_/")[0]


@pytest.mark.parametrize("is_cold", [False, True])
async def test_runtime_info_reports_the_state(tmp_path: Path, is_cold: bool) -> None:
    async with admin_broker(tmp_path) as broker:
        stats = broker.stats
        broker.put(b"x", b"y")
        stats.topic_put("T", 2, 500)
        stats.topic_put("SCHEDULE_TOPIC_XXXX", 1, 100)
        stats.group_get("CG", "T", 1, 250)
        stats.get_missed()
        stats.put_failed(3)
        stats.cycle_put(2, 7.6)
        stats.get_latency(12.3)
        stats.tick(NOW_MS + 1000, wall_ms=NOW_MS + 1000)
        if is_cold:
            broker.go_cold()
        info = await _info(broker)
        reported = {
            "brokerActive": "true",
            "brokerVersionDesc": "V5_3_3",
            "bootTimestamp": str(NOW_MS),
            "runtime": "[ 0 days, 0 hours, 0 minutes, 2 seconds ]",
            "earliestMessageTimeStamp": str(NOW_MS),
            "startAcceptSendRequestTimeStamp": "0",
            "compiledKernel": "not in use: compiledKernelEnable=false",
            "compiledKernelCure": "set it to true and restart the broker",
            "msgPutTotalTodayNow": "2",
            "msgGetTotalTodayNow": "1",
            "putMessageTimesTotal": "3",
            "putMessageFailedTimes": "3",
            "putMessageSizeTotal": "600",
            "putMessageAverageSize": "200.0",
            "putMessageEntireTimeMax": "7",
            "getMessageEntireTimeMax": "12",
            "putTps": "3.0 3.0 3.0",
            "getFoundTps": "1.0 1.0 1.0",
            "getMissTps": "1.0 1.0 1.0",
            "getTotalTps": "2.0 2.0 2.0",
            "getTransferedTps": "1.0 1.0 1.0",
            "getTransferredTps": "1.0 1.0 1.0",
            "commitLogMinOffset": "0",
            "commitLogMaxOffset": str(broker.store.log.max_phy_offset),
            "dispatchBehindBytes": "0",
            "sendThreadPoolQueueCapacity": "10000",
            "queryThreadPoolQueueCapacity": "20000",
            "EndTransactionThreadPoolQueueCapacity": "100000",
        }
        assert {key: info[key] for key in reported} == reported
        assert "[0~10ms]:2 " in info["putMessageDistributeTime"]
        assert 7 < float(info["putLatency99"]) <= 8


async def test_ratios_of_every_folder(tmp_path: Path) -> None:
    async with admin_broker(tmp_path) as broker:
        info = await _info(broker)
        ratio = info[f"commitLogDiskRatio_{tmp_path / 'commitlog'}"]
        assert info["commitLogDiskRatio"] == ratio == info["consumeQueueDiskRatio"]
        assert 0 <= float(ratio) <= 1
        assert info["commitLogDirCapacity"].startswith("Total : ")
        assert "iB, Free : " in info["commitLogDirCapacity"]


async def test_what_waits_for_the_disk_is_reported(tmp_path: Path) -> None:
    async with admin_broker(tmp_path) as broker:
        broker.put(b"x" * 3000)
        info = await _info(broker)
        assert (info["remainHowManyDataToFlush"], info["remainHowManyDataToCommit"]) == ("3.0 KiB", "0 B")
        broker.store.flush()
        assert (await _info(broker))["remainHowManyDataToFlush"] == "0 B"


async def test_delay_levels_report_delivered_and_stored(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "delayOffset.json").write_text('{"offsetTable":{3:1}}')
    async with admin_broker(tmp_path) as broker:
        broker.put(b"x", b"y", topic="SCHEDULE_TOPIC_XXXX", queue_id=2)
        assert (await _info(broker))["scheduleMessageOffset_3"] == "1,2"


def test_running_time_in_apaches_words() -> None:
    elapsed_ms = ((2 * 24 + 3) * 60 + 4) * 60_000 + 5999
    assert runtime_text(elapsed_ms) == "[ 2 days, 3 hours, 4 minutes, 5 seconds ]"


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1950, "1.9 KiB"), (1024**2, "1.0 MiB"), (252 * 1024**3, "252.0 GiB")],
)
def test_sizes_in_apaches_form(size_bytes: int, text: str) -> None:
    assert bytes_text(size_bytes) == text


# -- housekeeping ----------------------------------------------------------------------------------


async def test_queues_without_messages_are_cleaned(tmp_path: Path) -> None:
    async with admin_broker(tmp_path) as broker:
        for topic in ("T", "SCHEDULE_TOPIC_XXXX"):
            broker.put(b"old", topic=topic)
        broker.put(*[b"x" * 20_000] * 6, topic="U")
        broker.store.flush_derived(thorough=True)
        broker.store.log.delete_first()
        broker.store.queues.delete_expired(broker.store.log.min_phy_offset)
        assert (await broker.tool().call(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)).code == 0
        assert sorted(broker.store.queues.topics()) == ["SCHEDULE_TOPIC_XXXX", "U"]


async def test_a_queue_that_was_cleaned_is_consumed_from_its_new_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with admin_broker(tmp_path) as broker:
        broker.put(b"old")
        broker.put(*[b"x" * 20_000] * 6, topic="U")
        broker.offsets.commit("CG", "T", 0, 1, "")
        broker.offsets.commit("CG", "T", 1, 5, "")
        broker.offsets.commit("CG", "U", 0, 6, "")
        broker.offsets.commit_pull("CG", "T", 0, 1)
        broker.store.flush_derived(thorough=True)
        broker.store.log.delete_first()
        broker.store.queues.delete_expired(broker.store.log.min_phy_offset)
        woken: list[int] = []
        monkeypatch.setattr(broker.holds, "wake_all", lambda: woken.append(1))
        assert (await broker.tool().call(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)).code == 0
        assert woken, "a pull that waits at the old offset would pass over the first message"
        broker.put(b"new")
        assert broker.store.queue("T", 0).max_queue_offset == 1
        assert broker.offsets.query("CG", "T", 0) == broker.offsets.query_pull("CG", "T", 0) == -1
        # A kill right now does not bring the old one back, and the others are as they were.
        stored = Tables(tmp_path).load().offsets
        assert [stored.query("CG", *queue) for queue in (("T", 0), ("T", 1), ("U", 0))] == [-1, 5, 6]


async def test_offsets_of_topics_whose_queues_are_deleted_go_too(tmp_path: Path) -> None:
    async with admin_broker(tmp_path) as broker:
        put(broker.store, b"x", "unknown")
        broker.offsets.commit("CG", "unknown", 0, 1, "")
        broker.offsets.commit("CG", "T", 0, 1, "")
        assert (await broker.tool().call(RequestCode.CLEAN_UNUSED_TOPIC)).code == 0
        assert broker.offsets.query("CG", "unknown", 0) == -1
        assert broker.offsets.query("CG", "T", 0) == 1


async def test_queues_of_topics_that_are_not_configured_are_deleted(tmp_path: Path) -> None:
    async with admin_broker(tmp_path) as broker:
        for topic in ("T", "unknown", "SCHEDULE_TOPIC_XXXX"):
            put(broker.store, b"x", topic)
        assert (await broker.tool().call(RequestCode.CLEAN_UNUSED_TOPIC)).code == 0
        assert sorted(broker.store.queues.topics()) == ["SCHEDULE_TOPIC_XXXX", "T"]


async def test_old_files_of_the_log_are_deleted_at_any_hour(tmp_path: Path) -> None:
    # Files get their time from the machine: any hour but the one that it will be for the broker.
    other_hour = (time.localtime().tm_hour + 12) % 24
    async with admin_broker(tmp_path, delete_when=f"{other_hour:02}") as broker:
        broker.put(*[b"x" * 20_000] * 10)
        broker.store.flush()
        newest_ms = max(log_file.path.stat().st_mtime_ns for log_file in _log_files(broker)) // 10**6
        broker.clock.advance(newest_ms - broker.clock() + 73 * 3_600_000)
        before = len(_log_files(broker))
        assert (await broker.tool().call(RequestCode.DELETE_EXPIRED_COMMITLOG)).code == 0
        assert before > 1 and len(_log_files(broker)) == 1


def _log_files(broker: AdminBroker) -> list:  # type: ignore[type-arg]
    return broker.store.log.log_files
