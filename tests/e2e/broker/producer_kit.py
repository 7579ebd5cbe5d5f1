"""Idempotent producers at the protocol: what they open, send and get as answers."""

from __future__ import annotations

from typing import Any

from kourou.protocol.batch import BatchEntry, encode_batch_entries
from kourou.protocol.bodies.producer_sequences import ProducerSequences
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import RemotingCommand
from kourou.protocol.headers.producers import (
    GetSequencesRequestHeader,
    OpenProducerRequestHeader,
    OpenProducerResponseHeader,
)
from kourou.protocol.headers.send import SendMessageResponseHeader
from tests.e2e.broker.broker_kit import Peer, messages, send_header

TOPIC = "TopicTest"


class OpenProducer:
    """A producer that numbers by hand."""

    def __init__(self, peer: Peer, producer_id: str, epoch: int) -> None:
        self.peer = peer
        self.id = producer_id
        self.epoch = epoch

    def properties(self, sequence: int, more: str = "") -> str:
        return f"UNIQ_KEY\x01ID{sequence}\x02__KOUROU_SEQ\x01{self.id}:{self.epoch}:{sequence}\x02{more}"

    async def send(self, sequence: int, *, more: str = "", **fields: Any) -> RemotingCommand:
        body = b"%d" % sequence
        fields = {"kourou_sequenced": True, **fields}
        return await self.peer.send(TOPIC, body, self.properties(sequence, more), **fields)

    async def send_batch(self, *sequences: int, **fields: Any) -> RemotingCommand:
        entries = [BatchEntry(0, b"%d" % one, self.properties(one).encode()) for one in sequences]
        header = send_header(TOPIC, "", batch=True, kourou_sequenced=True, **fields)
        return await self.peer.call(RequestCode.SEND_BATCH_MESSAGE, header, encode_batch_entries(entries))

    async def last_sequences(self) -> dict[int, int]:
        header = GetSequencesRequestHeader(kourou_producer_id=self.id, topic=TOPIC)
        answer = await self.peer.call(RequestCode.GET_KOUROU_SEQUENCES, header)
        return ProducerSequences.decode(answer.body or b"").sequences


async def opened(
    peer: Peer, name: str | None = None, *, allows_gaps: bool = False, nonce: str | None = None
) -> OpenProducer:
    header = OpenProducerRequestHeader(
        producer_group="producers", kourou_name=name, kourou_allows_gaps=allows_gaps, kourou_nonce=nonce
    )
    answer = await peer.call(RequestCode.OPEN_KOUROU_PRODUCER, header)
    assert answer.code == 0, answer.remark
    found = answer.header(OpenProducerResponseHeader)
    return OpenProducer(peer, found.kourou_producer_id, found.kourou_epoch)


def place(answer: RemotingCommand) -> tuple[str, int]:
    """The message id and the queue_offset of an answer."""
    assert answer.code == 0, answer.remark
    header = answer.header(SendMessageResponseHeader)
    return header.msg_id, header.queue_offset


async def stored(peer: Peer, topic: str = TOPIC, queue_id: int = 0) -> list[int]:
    """What a queue has, in order."""
    found: list[int] = []
    while batch := messages(await peer.pull(topic, len(found), queue_id=queue_id, suspend_timeout_millis=0)):
        found += [int(message.body) for message in batch]
    return found
