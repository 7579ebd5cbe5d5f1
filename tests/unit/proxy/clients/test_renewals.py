"""Held messages: when their time is extended, when it is not any more, and what is left of them."""

from __future__ import annotations

import asyncio

import pytest

from kourou.errors import CallTimeoutError
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import RemotingCommand
from kourou.proxy.clients.held_messages import HeldMessage, HeldMessages
from kourou.proxy.clients.proxy_client import ProxyClient
from kourou.proxy.clients.renewals import Renewals
from tests.unit.proxy.recorded import ProxyKit, SentRequest, consumer_settings, settle
from tests.unit.proxy.service.popped import POP_TIME, handle, receipt

CHANGE = RequestCode.CHANGE_MESSAGE_INVISIBLETIME


class Holder:
    """A client that holds messages, at a time that the test sets."""

    def __init__(self, kit: ProxyKit, monkeypatch: pytest.MonkeyPatch) -> None:
        self.kit = kit
        self.now_s = 1_000.0
        self.held = HeldMessages()
        self.renewals = Renewals(self.held, kit.tasks)
        monkeypatch.setattr(self.renewals, "_loop", self)
        self.client: ProxyClient = kit.client(consumer_settings())

    def time(self) -> float:
        return self.now_s

    def create_future(self) -> asyncio.Future[None]:
        return asyncio.get_running_loop().create_future()

    def hold(self, queue_offset: int = 7, reconsume_times: int = 0) -> HeldMessage:
        key = "g", "T", handle(queue_offset)
        self.held.add(
            self.client, key, receipt(queue_offset), reconsume_times=reconsume_times, received_s=self.now_s
        )
        held = self.held.find(self.client, key)
        assert held is not None
        return held

    def wait(self, seconds: float) -> list[SentRequest]:
        """Let rounds go by; the changes that are sent meanwhile."""
        before = len(self.kit.brokers.sent)
        end_s = self.now_s + seconds
        while self.now_s < end_s:
            self.now_s += min(5.0, end_s - self.now_s)
            self.renewals.extend_due(self.now_s)
        return self.kit.brokers.sent[before:]

    def renewed(self, sent: SentRequest) -> RemotingCommand:
        pop_time = POP_TIME + int(self.now_s * 1000)
        fields = {"popTime": str(pop_time), "invisibleTime": sent.fields["invisibleTime"], "reviveQid": "4"}
        return RemotingCommand(0, ext_fields=fields)


@pytest.fixture
async def holder(kit: ProxyKit, monkeypatch: pytest.MonkeyPatch) -> Holder:
    return Holder(kit, monkeypatch)


async def test_a_time_is_extended_when_little_of_it_is_left(holder: Holder) -> None:
    holder.hold()
    assert holder.wait(45) == []
    (sent,) = holder.wait(10)
    assert (sent.code, sent.fields["invisibleTime"], sent.fields["extraInfo"]) == (
        CHANGE,
        "60000",
        receipt(7).encode(),
    )


async def test_extensions_become_longer_and_use_the_latest_handle(holder: Holder) -> None:
    holder.kit.brokers.answers[CHANGE] = holder.renewed
    held = holder.hold()
    sent = holder.wait(3 * 3600)
    minutes = [int(each.fields["invisibleTime"]) // 60_000 for each in sent]
    assert minutes[:6] == [1, 3, 5, 10, 30, 60] and set(minutes[6:]) == {60}
    assert len({each.fields["extraInfo"] for each in sent}) == len(sent)
    assert (held.renewals, holder.renewals.counts.renewed) == (len(sent), len(sent))


async def test_a_message_that_is_held_for_hours_is_given_back(holder: Holder) -> None:
    holder.kit.brokers.answers[CHANGE] = holder.renewed
    holder.hold(reconsume_times=2)
    sent = holder.wait(6 * 3600)
    # The delay of the group's policy after its third delivery.
    assert sent[-1].fields["invisibleTime"] == "10000"
    assert (len(holder.held), holder.renewals.counts.given_up) == (0, 1)
    assert holder.wait(24 * 3600) == []


async def test_an_extension_that_fails_is_tried_again_until_the_time_is_over(holder: Holder) -> None:
    answers = [CallTimeoutError("broker-a", CHANGE, 3_000)] * 3
    holder.kit.brokers.answers[CHANGE] = lambda sent: answers.pop() if answers else holder.renewed(sent)
    holder.hold(7)
    assert len(holder.wait(60)) == 2
    assert (len(holder.held), holder.renewals.counts.failed) == (0, 2)
    holder.hold(9)
    assert len(holder.wait(60)) == 2
    assert (len(holder.held), holder.renewals.counts.renewed) == (1, 1)


async def test_a_message_that_the_broker_does_not_know_any_more_is_dropped(holder: Holder) -> None:
    holder.kit.brokers.say(CHANGE, ResponseCode.NO_MESSAGE, popTime=0, invisibleTime=0, reviveQid=0)
    holder.hold()
    assert len(holder.wait(60)) == 1
    assert len(holder.held) == 0


async def test_a_message_in_use_is_not_extended(holder: Holder) -> None:
    held = holder.hold()
    held.use(lambda: None)
    assert holder.wait(50) == []
    held.release()
    assert len(holder.wait(5)) == 1


async def test_a_message_whose_time_has_ended_is_forgotten(holder: Holder) -> None:
    held = holder.hold()
    held.use(lambda: None)
    holder.wait(120)
    assert (len(holder.held), holder.held.find(holder.client, held.key)) == (0, None)


async def test_an_acknowledged_message_leaves_nothing_behind(holder: Holder) -> None:
    for offset in range(1_000):
        holder.held.remove(holder.hold(offset))
    assert len(holder.held) == 0
    assert holder.held._slots == {} and holder.held._by_client == {}


async def test_the_number_of_held_messages_is_bounded(kit: ProxyKit) -> None:
    held = HeldMessages(max_held=2)
    client = kit.client()
    for offset in range(5):
        held.add(client, ("g", "T", handle(offset)), receipt(offset), reconsume_times=0, received_s=0)
    assert (len(held), held.not_held) == (2, 3)


async def test_the_same_message_twice_is_held_once(holder: Holder) -> None:
    holder.hold()
    holder.hold()
    assert len(holder.held) == 1
    assert len(holder.wait(55)) == 1


async def test_the_messages_of_a_client_that_is_gone_are_given_back(holder: Holder) -> None:
    holder.hold(7)
    expired = holder.hold(9)
    expired.expires_s = 0
    giving = asyncio.ensure_future(holder.renewals.give_back_all(holder.client))
    await settle()
    (sent,) = holder.kit.brokers.sent
    assert (sent.fields["offset"], sent.fields["invisibleTime"]) == ("7", "1000")
    sent.answer(CallTimeoutError("broker-a", CHANGE, 3_000))
    await giving
    assert len(holder.held) == 0


async def test_what_is_under_way_when_a_client_leaves_decides(holder: Holder) -> None:
    extended, acknowledged = holder.hold(7), holder.hold(9)
    acknowledged.use(lambda: None)
    (change,) = holder.wait(55)
    giving = asyncio.ensure_future(holder.renewals.give_back_all(holder.client))
    await settle()
    assert len(holder.kit.brokers.sent) == 1
    acknowledged.is_settled = True
    acknowledged.release()
    change.answer(holder.renewed(change))
    await settle()
    # Only the one that was extended is given back, by its latest handle.
    back = holder.kit.brokers.sent[-1]
    assert (len(holder.kit.brokers.sent), back.fields["invisibleTime"]) == (2, "1000")
    assert back.fields["extraInfo"] == extended.handle.encode() != change.fields["extraInfo"]
    back.answer(RemotingCommand(0))
    await giving


async def test_an_ack_that_outlasts_the_end_of_its_client_is_answered(holder: Holder) -> None:
    held = holder.hold()
    held.use(lambda: None)
    giving = asyncio.ensure_future(holder.renewals.give_back_all(holder.client))
    await settle()
    giving.cancel()
    await asyncio.gather(giving, return_exceptions=True)
    held.release()
    assert not held.is_used


async def test_a_stop_gives_back_what_clients_cannot_acknowledge_without_the_proxy(holder: Holder) -> None:
    holder.kit.brokers.answers[CHANGE] = holder.renewed
    extended = holder.hold(7)
    holder.wait(55)
    holder.hold(8)
    await holder.renewals.give_back_renewed(holder.client)
    (sent,) = holder.kit.brokers.requests(CHANGE)[1:]
    assert (sent.fields["extraInfo"], sent.fields["invisibleTime"]) == (extended.handle.encode(), "1000")
    assert len(holder.held) == 0
