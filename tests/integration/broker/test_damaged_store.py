"""A broker on a damaged store: consumers get all that can be read, and operators see what cannot."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from kourou.admin.doctor.checks_servers import damage_findings
from kourou.admin.doctor.cluster_snapshot import BrokerView
from kourou.admin.session import BrokerAddress
from kourou.protocol.bodies import KVTable, decode_body
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.headers import QueryMessageRequestHeader
from kourou.protocol.headers.pull import PullMessageResponseHeader
from kourou.protocol.message import MessageExt
from kourou.protocol.record import decode_record, decode_records
from kourou.protocol.record_fields import record_positions
from kourou.store.disk.files import Files
from tests.e2e.broker.broker_kit import Peer, running

MESSAGES = 120
DELAYED = 12
PLACE = BrokerAddress("c", "broker-a", 0, "127.0.0.1:10911")
KEYS: dict[str, Any] = {"enable_property_filter": True, "message_delay_level": "1s"}


def log_file(root: Path) -> Path:
    return root / "store" / "commitlog" / f"{0:020d}"


async def fill(root: Path) -> list[MessageExt]:
    """A store with messages of one queue and delayed ones for another topic between them; its records."""
    async with running(root, **KEYS) as peer:
        for number in range(MESSAGES):
            properties = f"UNIQ_KEY\x01ID{number}\x02TAGS\x01t{number % 2}\x02price\x01{number}\x02"
            answer = await peer.send("TopicTest", b"%d" % number * 20, properties)
            assert answer.code == ResponseCode.SUCCESS
            if number % (MESSAGES // DELAYED) == 0:
                await peer.send("Delayed", b"delayed %d" % number, f"UNIQ_KEY\x01D{number}\x02DELAY\x011\x02")
    raw = log_file(root).read_bytes()
    raw = raw[: raw.rindex(b"\x02") + 1]
    return list(decode_records(raw))


async def consume(peer: Peer, topic: str, **fields: Any) -> list[MessageExt]:
    """Every message of queue 0, as a client pulls them; a pull never gives what cannot be decoded."""
    found: list[MessageExt] = []
    at = 0
    while True:
        answer = await peer.pull(topic, at, **fields)
        header = answer.header(PullMessageResponseHeader)
        for position in record_positions(answer.body)[:-1]:
            found.append(decode_record(answer.body, position, verify_body_crc=True))
        if answer.code == ResponseCode.PULL_NOT_FOUND:
            assert at == header.max_offset
            return found
        assert answer.code in (ResponseCode.SUCCESS, ResponseCode.PULL_RETRY_IMMEDIATELY), answer
        assert header.next_begin_offset > at
        at = header.next_begin_offset


async def runtime(peer: Peer) -> dict[str, str]:
    answer = await peer.call(RequestCode.GET_BROKER_RUNTIME_INFO)
    return decode_body(answer.body, KVTable).table


def damage(root: Path, begin: int, raw: bytes) -> None:
    with log_file(root).open("r+b") as file:
        file.seek(begin)
        file.write(raw)


@pytest.mark.parametrize(
    "raw", [bytes(4096), random.Random(1).randbytes(4096)], ids=["zeros", "random bytes"]
)
async def test_a_damaged_stretch_is_stepped_over_by_every_reader(
    tmp_path: Path, raw: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    records = await fill(tmp_path)
    begin = records[50].phy_offset + 30
    hit = [r for r in records if r.phy_offset < begin + 4096 and begin < r.phy_offset + r.store_size]
    lost = {r.properties["UNIQ_KEY"] for r in hit}
    assert any(id_.startswith("D") for id_ in lost), "a delayed message is among them"
    damage(tmp_path, begin, raw)
    whole = [n for n in range(MESSAGES) if f"ID{n}" not in lost]
    async with running(tmp_path, files=Files(), **KEYS) as peer:
        plain = await consume(peer, "TopicTest")
        assert [int(m.properties["price"]) for m in plain] == whole
        tagged = await consume(peer, "TopicTest", consumer_group="by-tag", subscription="t1")
        assert [int(m.properties["price"]) for m in tagged] == [n for n in whole if n % 2]
        by_sql = await consume(
            peer,
            "TopicTest",
            consumer_group="by-sql",
            subscription="price >= 30",
            expression_type="SQL92",
        )
        assert [int(m.properties["price"]) for m in by_sql] == [n for n in whole if n >= 30]
        info = await runtime(peer)
        assert int(info["lostMessages"]) >= len([id_ for id_ in lost if id_.startswith("ID")])
        assert (info["damagedLogStretches"], info["rebuiltQueueUnits"]) == ("1", "0")
        assert int(info["damagedLogBytes"]) >= 4096
        (finding,) = damage_findings(BrokerView(PLACE, info, 0, 0))
        assert "known damage in its CommitLog: 1 range, " in finding.what
        for number in range(MESSAGES):
            header = QueryMessageRequestHeader(
                topic="TopicTest", key=f"ID{number}", max_num=4, begin_timestamp=0, end_timestamp=1 << 60
            )
            answer = await peer.call(RequestCode.QUERY_MESSAGE, header)
            is_found = answer.code == ResponseCode.SUCCESS
            assert is_found == (number in whole), (number, answer)
        async with asyncio.timeout(20):
            while True:
                delivered = {
                    m.properties["UNIQ_KEY"]
                    for queue_id in range(4)
                    for m in await consume(peer, "Delayed", queue_id=queue_id, consumer_group="late")
                }
                if len(delivered) == DELAYED - len([id_ for id_ in lost if id_.startswith("D")]):
                    break
                await asyncio.sleep(0.05)
        await peer.send("TopicTest", b"goes on", "UNIQ_KEY\x01last\x02price\x010\x02")
        assert len(await consume(peer, "TopicTest")) == len(whole) + 1
    stretches = [r for r in caplog.records if "no valid record from" in r.getMessage()]
    assert len(stretches) == 1, "once, not with every pull"


async def test_a_queue_of_random_bytes_is_rebuilt_while_it_is_pulled(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await fill(tmp_path)
    path = tmp_path / "store" / "consumequeue" / "TopicTest" / "0" / f"{0:020d}"
    with path.open("r+b") as file:
        file.write(random.Random(2).randbytes(MESSAGES * 20))
    async with running(tmp_path, **KEYS) as peer:
        consumed = await consume(peer, "TopicTest", max_msg_nums=7)
        assert [int(m.properties["price"]) for m in consumed] == list(range(MESSAGES))
        info = await runtime(peer)
        assert (info["rebuiltQueueUnits"], info["lostMessages"]) == (str(MESSAGES), "0")
        (finding,) = damage_findings(BrokerView(PLACE, info, 0, 0))
        assert finding.severity == "warning"
    (line,) = [r.getMessage() for r in caplog.records if "did not fit" in r.getMessage()]
    assert line.startswith("TopicTest/0: ") and str(path) in line
