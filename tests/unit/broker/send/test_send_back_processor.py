"""A message that is sent back when it is no longer in memory."""

from __future__ import annotations

import asyncio
from pathlib import Path

from kourou.broker.send.send_back_processor import SendBackProcessor
from kourou.protocol.codes import RequestCode
from kourou.protocol.headers.send import ConsumerSendMsgBackRequestHeader
from kourou.transport.dispatcher import Dispatcher
from tests.unit.broker.admin_kit import AdminBroker, admin_broker
from tests.unit.store.message_stores import read_queue


def with_send_back(broker: AdminBroker) -> None:
    """Give the broker the processor, and passes that end."""
    more = Dispatcher(broker.wired(SendBackProcessor).processors())
    others = broker.dispatch
    broker.dispatch = lambda request: (
        more if request.code == RequestCode.CONSUMER_SEND_MSG_BACK else others
    )(request)


async def test_a_cold_message_is_read_by_a_disk_thread(tmp_path: Path) -> None:
    async with admin_broker(tmp_path) as broker:
        with_send_back(broker)
        (place,) = broker.put(b"again")
        broker.go_cold()
        header = ConsumerSendMsgBackRequestHeader(phy_offset=place, group="CG", delay_level=0)
        call = asyncio.ensure_future(broker.tool().call(RequestCode.CONSUMER_SEND_MSG_BACK, header))
        async with asyncio.timeout(5):
            while not broker.store.pending_bytes:  # noqa: ASYNC110 (nothing tells us)
                await asyncio.sleep(0)
        assert broker.disk_jobs == 1
        broker.store.write_and_publish()
        assert (await call).code == 0
        (waiting,) = read_queue(broker.store, "SCHEDULE_TOPIC_XXXX", 2)
        assert (waiting.body, waiting.reconsume_times) == (b"again", 1)
