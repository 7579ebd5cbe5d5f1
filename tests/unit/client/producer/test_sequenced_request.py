"""The bytes of a request with sequences, and the batches that an idempotent producer makes."""

from __future__ import annotations

from kourou.client.core.namespaces import Namespace
from kourou.client.core.unique_id import UniqueIds
from kourou.client.producer.outgoing import MAX_SEQUENCED_BATCH, Outgoing, plan_batches
from kourou.client.producer.producer_options import ProducerOptions
from kourou.client.producer.send_request import SendRequest, SequencedRequest
from kourou.protocol.batch import split_batch
from kourou.protocol.message import Message
from kourou.protocol.producer_sequence import MAX_EPOCH, MAX_NAME_LENGTH, MAX_SEQUENCE
from kourou.protocol.properties import decode_properties, properties_from_bytes

SEQ = "__KOUROU_SEQ"


def outgoing(*, idempotent: bool = True) -> Outgoing:
    return Outgoing(Namespace(), ProducerOptions(idempotent=idempotent), UniqueIds("10.0.0.1"))


def sequenced(request: SendRequest) -> SequencedRequest:
    assert isinstance(request, SequencedRequest)
    return request


def test_an_ordinary_producer_has_ordinary_requests() -> None:
    assert type(outgoing(idempotent=False).request(Message("T", b"x"))) is SendRequest


def test_a_new_sequence_takes_the_place_of_the_old_one() -> None:
    request = sequenced(outgoing().request(Message("T", b"x", tags="A"), extra="more\x01yes\x02"))
    plain = request.properties
    assert not request.is_sequenced
    for sequence in (0, 41):
        request.set_sequences("@loader:3", [sequence])
        assert request.properties == f"{plain}{SEQ}\x01@loader:3:{sequence}\x02"
        # Hooks have the properties of the message encoded again, and these behind them.
        assert request.extra_properties == f"more\x01yes\x02{SEQ}\x01@loader:3:{sequence}\x02"
        assert request.is_sequenced and b'"kourouSequenced":"true"' in request.tail
    request.remove_sequences()
    assert (request.properties, request.extra_properties) == (plain, "more\x01yes\x02")
    assert not request.is_sequenced


def test_each_message_of_a_batch_gets_its_own_and_loses_a_foreign_one() -> None:
    foreign = Message("T", b"2", properties={SEQ: "@other:1:1"})
    request = sequenced(outgoing().batch([Message("T", b"1"), foreign]))
    plain = request.body
    for first in (7, 9):
        request.set_sequences("0011223344556677:0", range(first, first + 2))
        found = [
            decode_properties(properties_from_bytes(each.raw_properties))
            for each in split_batch(request.body)
        ]
        assert [each[SEQ] for each in found] == [f"0011223344556677:0:{first + n}" for n in range(2)]
    assert split_batch(request.body)[1].raw_properties.count(SEQ.encode()) == 1
    request.remove_sequences()
    assert request.body == plain and not request.is_sequenced


def test_batches_leave_room_for_the_longest_sequences() -> None:
    identity = f"@{'n' * MAX_NAME_LENGTH}:{MAX_EPOCH}"
    messages = [Message("T", b"%04d" % number) for number in range(1_000)]
    limit = 20_000
    plans = plan_batches(messages, limit, is_sequenced=True)
    for plan in plans:
        request = sequenced(outgoing().batch([messages[index] for index in plan]))
        request.set_sequences(identity, [MAX_SEQUENCE - index for index in plan])
        assert len(request.body) <= limit
    assert [index for plan in plans for index in plan] == list(range(1_000))


def test_a_batch_has_no_more_messages_than_fit_into_the_window_several_times() -> None:
    sizes = [len(plan) for plan in plan_batches([Message("T", b"x")] * 600, 10**6, is_sequenced=True)]
    assert sizes == [MAX_SEQUENCED_BATCH, MAX_SEQUENCED_BATCH, 600 - 2 * MAX_SEQUENCED_BATCH]
    assert len(plan_batches([Message("T", b"x")] * 600, 10**6)) == 1
