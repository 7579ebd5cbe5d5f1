"""Commands for parts of 5.x that no broker here has, answered by hand in the words of Apache's brokers."""

from __future__ import annotations

import json

import pytest

from kourou.protocol.codes import RequestCode
from kourou.protocol.command import RemotingCommand
from tests.golden.mqadmin import Exchange, Recording, run_replayed

BROKER = "127.0.0.1:10911"


def _answered(
    code: RequestCode,
    *words: str,
    body: dict[str, object] | None = None,
    remark: str | None = None,
) -> Recording:
    request = RemotingCommand(code=code, ext_fields={})
    raw = json.dumps(body).encode() if body is not None else b""
    answer = RemotingCommand(code=0, remark=remark, body=raw)
    return Recording("", "5.5.0", (*words, "-b", BROKER), "", (Exchange(request, answer),))


async def test_a_slave_reports_its_progress() -> None:
    status = {
        "master": False,
        "haClientRuntimeInfo": {
            "masterAddr": "10.0.0.1:10912",
            "transferredByteInSecond": 2048,
            "maxOffset": 700,
            "lastReadTimestamp": 1794711772017,
            "lastWriteTimestamp": 1794711772046,
            "masterFlushOffset": 600,
        },
    }
    text = await run_replayed(_answered(RequestCode.GET_BROKER_HA_STATUS, "haStatus", body=status))
    assert text.splitlines() == [
        "",
        "#MasterAddr\t10.0.0.1:10912",
        "#CommitLogMaxOffset\t700",
        "#TransferSpeed(KB/s)\t2.00",
        "#LastReadTime\t2026-11-15 03:02:52,017",
        "#LastWriteTime\t2026-11-15 03:02:52,046",
        "#MasterFlushOffset\t600",
    ]


async def test_a_master_reports_its_slaves() -> None:
    slave = {
        "addr": "10.0.0.2:40000",
        "slaveAckOffset": 90,
        "diff": 10,
        "inSync": False,
        "transferredByteInSecond": 1536,
        "transferFromWhere": 5,
    }
    status: dict[str, object] = {
        "master": True,
        "masterCommitLogMaxOffset": 100,
        "inSyncSlaveNums": 1,
        "haConnectionInfo": [slave, {**slave, "inSync": True}],
    }
    text = await run_replayed(_answered(RequestCode.GET_BROKER_HA_STATUS, "haStatus", body=status))
    assert text.splitlines()[2:5] == ["#MasterCommitLogMaxOffset\t100", "#SlaveNum\t2", "#InSyncSlaveNum\t1"]
    assert text.splitlines()[6:] == [
        f"{'10.0.0.2:40000':<32}  {90:<16} {10:>16} {'1.50':>16} {status_word:>16} {5:>16}"
        for status_word in ("Fall Behind", "OK")
    ]


async def test_epochs_are_shown_as_apache_shows_them() -> None:
    body: dict[str, object] = {
        "brokerId": 1,
        "brokerName": "broker-a",
        "clusterName": "DefaultCluster",
        "epochList": [
            {"endOffset": 500, "epoch": 1, "startOffset": 0},
            {"endOffset": 9223372036854775807, "epoch": 3, "startOffset": 500},
        ],
        "maxOffset": 700,
    }
    request = RemotingCommand(code=RequestCode.GET_BROKER_EPOCH_CACHE, ext_fields={})
    cluster = RemotingCommand(code=RequestCode.GET_BROKER_CLUSTER_INFO, ext_fields={})
    place = {"brokerName": "broker-a", "cluster": "DefaultCluster", "brokerAddrs": {"0": BROKER, "1": "s:1"}}
    known = {"brokerAddrTable": {"broker-a": place}, "clusterAddrTable": {"DefaultCluster": ["broker-a"]}}
    exchanges = (
        Exchange(cluster, RemotingCommand(code=0, body=json.dumps(known).encode())),
        Exchange(request, RemotingCommand(code=0, body=json.dumps(body).encode())),
        Exchange(request, RemotingCommand(code=0, body=json.dumps({**body, "brokerId": 0}).encode())),
    )
    recording = Recording("", "5.5.0", ("getBrokerEpoch", "-b", "broker-a"), "", exchanges)
    text = await run_replayed(recording)
    # Apache's has no newline at the end.
    assert text == "\n" + "".join(
        f"\n#clusterName\tDefaultCluster\n#brokerName\tbroker-a\n#brokerAddr\t{address}\n#brokerId\t{broker_id}\n"
        "#Epoch: EpochEntry{epoch=1, startOffset=0, endOffset=500}\n"
        "#Epoch: EpochEntry{epoch=3, startOffset=500, endOffset=700}\n"
        for address, broker_id in ((BROKER, 1), ("s:1", 0))
    )


async def test_cold_reads_are_shown_with_their_times() -> None:
    entry = {"coldAcc": 5, "lastColdReadTimeMills": 1794711772017, "createTimeMills": 1794711700000}
    table = {"runtimeTable": {"Payments": entry}, "globalAcc": 5}
    words = (RequestCode.GET_COLD_DATA_FLOW_CTR_INFO, "getColdDataFlowCtrInfo")
    text = await run_replayed(_answered(*words, body=dict(table)))
    assert text.splitlines() == [
        f" ============{BROKER}============",
        "{",
        '\t"runtimeTable":{',
        '\t\t"Payments":{',
        '\t\t\t"coldAcc":5,',
        '\t\t\t"lastColdReadTimeFormat":"2026-11-15 03:02:52",',
        '\t\t\t"createTimeFormat":"2026-11-15 03:01:40"',
        "\t\t}",
        "\t},",
        '\t"globalAcc":5',
        "}",
    ]
    none = await run_replayed(_answered(*words))
    assert none.splitlines()[1] == f"Broker[{BROKER}] has no cold ctr table !"


@pytest.mark.parametrize(
    ("recording", "expected"),
    [
        (
            _answered(
                RequestCode.SET_COMMITLOG_READ_MODE,
                *("setCommitLogReadAheadMode", "-m", "1"),
                remark="set commitlog readahead mode success, mode: 1",
            ),
            f" ============{BROKER}============\n"
            "commitLog set readAhead mode rstStrset commitlog readahead mode success, mode: 1\n",
        ),
        (
            _answered(RequestCode.SWITCH_TIMER_ENGINE, "switchTimerEngine", "-e", "F"),
            f"switchTimerEngine to FILE_TIME_WHEEL success, {BROKER}\n",
        ),
        (
            _answered(
                RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG,
                *("updateColdDataFlowCtrGroupConfig", "-g", "G", "-v", "1000"),
            ),
            f"updateColdDataFlowCtrGroupConfig success, {BROKER}\n",
        ),
        (
            _answered(
                RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG, "removeColdDataFlowCtrGroupConfig", "-g", "G"
            ),
            f"remove broker cold read threshold success, {BROKER}\n",
        ),
        (
            _answered(RequestCode.RESET_MASTER_FLUSH_OFFSET, "resetMasterFlushOffset", "-o", "7"),
            "reset master flush offset to 7 success\n",
        ),
    ],
    ids=lambda value: value.arguments[0] if isinstance(value, Recording) else "",
)
async def test_what_changes_something(recording: Recording, expected: str) -> None:
    assert await run_replayed(recording) == expected
