"""Message trace on a real broker: an ordinary message in its own topic, found by the ids in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.headers import QueryMessageRequestHeader
from kourou.protocol.headers.send import SendMessageResponseHeader
from kourou.protocol.record import decode_records
from tests.e2e.broker.broker_kit import running

pytestmark = pytest.mark.e2e

TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
PUB = "\x01".join(
    (
        *("Pub", "1700000000000", "DefaultRegion", "PG", "TopicTest", "MSG1", "TagA", "order-1"),
        *("127.0.0.1:10911", "5", "3", "0", "OFFSETID", "true"),
    )
)


async def test_a_trace_is_found_by_the_id_of_its_message(tmp_path: Path) -> None:
    async with running(tmp_path, trace_topic_enable=True) as peer:
        config = peer.controller.services.topics.get(TRACE_TOPIC)
        assert config is not None and config.write_queue_nums == 1
        body = f"{PUB}\x02".encode()
        answer = await peer.send(TRACE_TOPIC, body, "KEYS\x01MSG1 order-1\x02UNIQ_KEY\x01TRACE1\x02")
        header = answer.header(SendMessageResponseHeader)
        assert (answer.code, header.msg_region, header.trace_on) == (0, "DefaultRegion", True)
        for key in ("MSG1", "order-1"):
            query = QueryMessageRequestHeader(
                topic=TRACE_TOPIC, key=key, max_num=64, begin_timestamp=0, end_timestamp=1 << 60
            )
            found = await peer.call(RequestCode.QUERY_MESSAGE, query)
            assert [record.body for record in decode_records(found.body)] == [body]


async def test_a_broker_that_wants_no_traces_says_so_with_every_send(tmp_path: Path) -> None:
    async with running(tmp_path, trace_on=False, region_id="Shore") as peer:
        header = (await peer.send()).header(SendMessageResponseHeader)
        assert (header.msg_region, header.trace_on) == ("Shore", False)


async def test_the_trace_topic_is_made_only_if_asked_for(tmp_path: Path) -> None:
    async with running(tmp_path, auto_create_topic_enable=False) as peer:
        assert (await peer.send(TRACE_TOPIC, b"x")).code == ResponseCode.TOPIC_NOT_EXIST
