"""Locks on queues, over connections in memory."""

from __future__ import annotations

from pathlib import Path

from kourou.protocol.bodies import LockBatchRequestBody, MessageQueue, UnlockBatchRequestBody, encode_body
from kourou.protocol.codes import RequestCode, ResponseCode
from tests.unit.broker.tables_kit import MemoryBroker

QUEUES = [MessageQueue("T", "broker-a", queue_id) for queue_id in range(2)]


async def test_queues_are_locked_for_one_client_and_given_back(tmp_path: Path) -> None:
    broker = MemoryBroker(tmp_path)
    peer = broker.connect()

    async def lock(client_id: str, *queues: MessageQueue) -> bytes:
        body = encode_body(LockBatchRequestBody("CG", client_id, list(queues)))
        answer = await peer.call(RequestCode.LOCK_BATCH_MQ, body=body)
        assert answer.code == ResponseCode.SUCCESS
        return answer.body

    one = b'{"brokerName":"broker-a","queueId":0,"topic":"T"}'
    other = b'{"brokerName":"broker-a","queueId":1,"topic":"T"}'
    assert await lock("c1", QUEUES[0]) == b'{"lockOKMQSet":[' + one + b"]}"
    assert await lock("c2", *QUEUES) == b'{"lockOKMQSet":[' + other + b"]}"
    assert await lock("c3", *QUEUES) == b'{"lockOKMQSet":[]}'
    unlock = encode_body(UnlockBatchRequestBody("CG", "c1", QUEUES))
    assert (await peer.call(RequestCode.UNLOCK_BATCH_MQ, body=unlock)).code == ResponseCode.SUCCESS
    assert await lock("c3", *QUEUES) == b'{"lockOKMQSet":[' + one + b"]}"
    await broker.close()
