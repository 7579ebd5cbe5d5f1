"""Payments with orders and a provider in a process of its own, both ways: repeated, late, forged callbacks,
refunds, declined payments, and a provider that is killed."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.child_process import dies_with_parent
from tests.needed import need_module

for name in ("psycopg_pool", "fastapi", "httpx", "uvicorn"):
    need_module(name)

import httpx  # noqa: E402
import psycopg  # noqa: E402

from kourou import AsyncProducer, Message  # noqa: E402
from kourou.testing import LocalCluster  # noqa: E402
from tests.e2e.shop.shop_kit import (  # noqa: E402
    create_topics,
    events_in,
    new_cluster,
    new_database,
    running,
    settings_of,
    until,
)
from webshop.buyers.buyer import Buyers  # noqa: E402
from webshop.buyers.plan import Intent, planned_order  # noqa: E402
from webshop.callbacks import SIGNATURE, Callback, CallbackKind, sign  # noqa: E402
from webshop.checking.invariants import check  # noqa: E402
from webshop.coupons.service import service as coupons  # noqa: E402
from webshop.events import Event, Kind, OrderEvent, PaymentDue, Topic, encode, message_of, new_id  # noqa: E402
from webshop.goods.service import service as goods  # noqa: E402
from webshop.journal.service import service as log  # noqa: E402
from webshop.kit.calls import Calls  # noqa: E402
from webshop.kit.kill_points import KillPoint, arm, is_hit  # noqa: E402
from webshop.kit.relay import Relay  # noqa: E402
from webshop.money import shipping_of  # noqa: E402
from webshop.orders.service import service as orders  # noqa: E402
from webshop.payments.service import service as payments  # noqa: E402
from webshop.points.service import service as points  # noqa: E402
from webshop.running.filling import fill  # noqa: E402
from webshop.settings import VARIABLE, Settings, Way  # noqa: E402
from webshop.users.service import service as users  # noqa: E402

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module")]

_EXAMPLE = Path(__file__).parents[3] / "examples" / "shop"
_SERVICES = (goods, coupons, users, orders, payments, points, log)
_PROCESS_S = 60
_TEA = 650
_QUIET = {"delay_ms": 20, "repeats": 1, "decline_rate": 0, "is_paused": False}


@dataclass
class Provider:
    """The provider's process."""

    settings: Settings
    file: Path
    http: httpx.AsyncClient
    process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        path = os.pathsep.join([str(_EXAMPLE), os.environ.get("PYTHONPATH", "")])
        self.process = await asyncio.create_subprocess_exec(
            *(*dies_with_parent(), sys.executable, "-m", "webshop.provider"),
            env={**os.environ, VARIABLE: str(self.file), "PYTHONPATH": path},
        )
        async with asyncio.timeout(_PROCESS_S):
            while not await self._is_ready():  # noqa: ASYNC110  another process
                await asyncio.sleep(0.05)

    async def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        await self.wait_killed()

    async def wait_killed(self) -> None:
        assert self.process is not None
        assert await asyncio.wait_for(self.process.wait(), _PROCESS_S) == -signal.SIGKILL

    async def _is_ready(self) -> bool:
        try:
            return (await self.http.get(f"http://{self.settings.address('provider')}/health")).is_success
        except httpx.TransportError:
            return False


@dataclass
class Shop:
    settings: Settings
    cluster: LocalCluster
    http: httpx.AsyncClient
    producer: AsyncProducer
    provider: Provider

    # -- requests --------------------------------------------------------------------------------

    async def post(self, service: str, path: str, body: object) -> httpx.Response:
        return await self.http.post(f"http://{self.settings.address(service)}{path}", json=body)

    async def get(self, service: str, path: str) -> Any:
        return (await self.http.get(f"http://{self.settings.address(service)}{path}")).json()

    async def behave(self, **changes: Any) -> None:
        url = f"http://{self.settings.address('provider')}/behaviour"
        (await self.http.put(url, json={**_QUIET, **changes})).raise_for_status()

    async def place(self, way: Way, *, user_id: str = "ada", **changes: Any) -> str:
        """Place an order for tea that goes this way; its id."""
        order_id = next(each for each in iter(new_id, "") if self.settings.way_of(each) is way)
        body = {
            "order_id": order_id,
            "user_id": user_id,
            "items": [{"goods_id": "tea", "quantity": 1, "price": _TEA}],
            "shipping": shipping_of(_TEA),
            "total": _TEA + shipping_of(_TEA),
            "coupon_id": None,
            "balance": 0,
            **changes,
        }
        (await self.post("orders", "/orders", body)).raise_for_status()
        return order_id

    async def pay(self, order_id: str, payment_id: str | None = None, user_id: str = "ada") -> httpx.Response:
        body = {"payment_id": payment_id or new_id(), "order_id": order_id, "user_id": user_id}
        return await self.post("payments", "/payments", body)

    async def paid(self, way: Way, **changes: Any) -> tuple[str, str]:
        """An order that is placed, and its payment that has begun."""
        order_id, payment_id = await self.place(way, **changes), new_id()
        (await self.pay(order_id, payment_id)).raise_for_status()
        return order_id, payment_id

    async def call_back(
        self, payment_id: str, kind: CallbackKind, amount: int, *, signed: str | None = None
    ) -> httpx.Response:
        body = Callback(new_id(), payment_id, kind, amount).encode()
        header = sign(self.settings.provider_secret, body) if signed is None else signed
        url = f"http://{self.settings.address('payments')}/callbacks"
        return await self.http.post(url, content=body, headers={SIGNATURE: header})

    # -- what is there ---------------------------------------------------------------------------

    async def state(self, order_id: str) -> str:
        return str((await self.get("orders", f"/orders/{order_id}"))["state"])

    async def payment_states(self, order_id: str) -> list[str]:
        return [each["state"] for each in await self.get("payments", f"/payments?order_id={order_id}")]

    async def rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        async with await psycopg.AsyncConnection.connect(self.settings.database) as connection:
            return await (await connection.execute(query.encode(), values)).fetchall()

    async def events(self, order_id: str, topic: Topic) -> Counter[Kind]:
        found = await events_in(self.cluster, topic)
        return Counter(event.kind for event in found if event.order_id == order_id)

    async def until_state(self, order_id: str, state: str) -> None:
        async def has_state() -> bool:
            return await self.state(order_id) == state

        await until(has_state)

    async def until_payments(self, order_id: str, *states: str) -> None:
        async def have_states() -> bool:
            return await self.payment_states(order_id) == list(states)

        await until(have_states)

    async def until_charged(self, *payment_ids: str) -> None:
        async def are_charged() -> bool:
            query = "SELECT count(*) FROM provider.charges WHERE payment_id = ANY(%s)"
            return await self.rows(query, list(payment_ids)) == [(len(payment_ids),)]

        await until(are_charged)

    async def forget(self, *events: Event) -> None:
        """Wait until the log has events that a test has made up; then delete them from it."""

        async def are_logged() -> bool:
            found = await self.rows("SELECT FROM log.events WHERE event_id = ANY(%s)", ids)
            return len(found) == len(ids)

        ids = [event.event_id for event in events]
        await until(are_logged)
        await self.rows("DELETE FROM log.events WHERE event_id = ANY(%s) RETURNING 1", ids)

    async def check(self) -> None:
        """Wait until the shop is at rest; then all invariants hold."""
        async with await psycopg.AsyncConnection.connect(self.settings.database) as connection:

            async def is_at_rest() -> bool:
                return not any(each.is_pending for each in await check(connection))

            await until(is_at_rest)
            assert [each.text for each in await check(connection, is_final=True)] == []


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def whole_shop(postgres: int, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Shop]:
    folder = tmp_path_factory.mktemp("shop")
    with new_cluster() as cluster:
        create_topics(cluster)
        names = (*(each.name for each in _SERVICES), "provider")
        settings = settings_of(cluster, new_database(postgres), *names, pay_within_s=60)
        file = folder / "settings.json"
        (folder / "kill-points").mkdir()
        replace(settings, kill_points=str(folder / "kill-points")).save(file)
        async with (
            running(settings, *_SERVICES) as http,
            AsyncProducer("test", namesrv=cluster.namesrv) as producer,
        ):
            await fill(settings.database)
            relay = asyncio.create_task(Relay(settings).run())
            provider = Provider(settings, file, http)
            await provider.start()
            yield Shop(settings, cluster, http, producer, provider)
            await provider.kill()
            relay.cancel()
            await asyncio.gather(relay, return_exceptions=True)


@pytest_asyncio.fixture(loop_scope="module")
async def shop(whole_shop: Shop) -> AsyncIterator[Shop]:
    """The shop of all tests; after each of them its invariants hold."""
    await whole_shop.behave()
    yield whole_shop
    await whole_shop.check()


@pytest.mark.parametrize("way", Way)
async def test_a_payment_pays_its_order_and_everything_follows(shop: Shop, way: Way) -> None:
    before = (await shop.get("points", "/points/alan"))["points"]
    order_id = await shop.place(way, user_id="alan")
    payment_id = new_id()
    created = (await shop.pay(order_id, payment_id, "alan")).json()
    assert (created["state"], created["amount"], created["way"]) == ("CREATED", _TEA + 1000, way)
    await shop.until_state(order_id, "PAID")
    again = (await shop.pay(order_id, payment_id, "alan")).json()
    assert again["state"] == "PAID"
    refused = await shop.pay(order_id, user_id="alan")
    assert (refused.status_code, refused.json()["code"]) == (409, "ORDER_PAID")
    await shop.check()
    assert (await shop.get("points", "/points/alan"))["points"] == before + 16
    events = await shop.get("log", f"/log/{order_id}")
    assert [each["kind"] for each in events] == [
        "ORDER_CREATED",
        "ORDER_CONFIRMED",
        "PAYMENT_CREATED",
        "PAYMENT_PAID",
        "ORDER_PAID",
    ]
    assert {each["way"] for each in events} == {way}
    assert all(each["body"]["order_id"] == order_id and each["msg_id"] for each in events)


@pytest.mark.parametrize("way", Way)
async def test_callbacks_in_parallel_and_out_of_order_change_a_payment_once(shop: Shop, way: Way) -> None:
    await shop.behave(is_paused=True)
    order_id, payment_id = await shop.paid(way)
    await shop.until_charged(payment_id)
    kinds = [CallbackKind.PAID] * 12 + [CallbackKind.PROCESSING] * 4
    random.Random(7).shuffle(kinds)
    answers = await asyncio.gather(*(shop.call_back(payment_id, kind, _TEA + 1000) for kind in kinds))
    assert [answer.status_code for answer in answers] == [200] * len(kinds)
    assert sum(answer.json()["is_first"] for answer in answers) == 1
    await shop.until_state(order_id, "PAID")
    late = await shop.call_back(payment_id, CallbackKind.PROCESSING, _TEA + 1000)
    assert late.json()["is_first"] is False
    await shop.behave()
    await shop.check()
    expected = {Kind.PAYMENT_CREATED: 1, Kind.PAYMENT_PAID: 1}
    assert await shop.events(order_id, Topic.PAYMENTS) == expected

    async def are_measured() -> bool:
        query = (
            "SELECT is_first, count(*) FROM payments.callbacks WHERE payment_id = %s GROUP BY 1 ORDER BY 1"
        )
        # Those above, and the provider's own three.
        return await shop.rows(query, payment_id) == [(False, len(kinds) + 3), (True, 1)]

    await until(are_measured)


async def test_forged_unknown_and_wrong_callbacks_change_nothing(shop: Shop) -> None:
    await shop.behave(is_paused=True)
    order_id, payment_id = await shop.paid(Way.OUTBOX)
    amount = _TEA + 1000
    forged = await shop.call_back(payment_id, CallbackKind.PAID, amount, signed="0" * 64)
    unknown = await shop.call_back(new_id(), CallbackKind.PAID, amount)
    wrong = await shop.call_back(payment_id, CallbackKind.PAID, amount - 1)
    assert [each.status_code for each in (forged, unknown, wrong)] == [401, 404, 409]
    codes = ["WRONG_SIGNATURE", "PAYMENT_UNKNOWN", "WRONG_AMOUNT"]
    assert [each.json()["code"] for each in (forged, unknown, wrong)] == codes
    assert f"{amount - 1} cents" in wrong.json()["error"] and f"{amount} cents" in wrong.json()["error"]
    assert await shop.payment_states(order_id) == ["CREATED"]
    await shop.behave()


@pytest.mark.parametrize("way", Way)
async def test_a_payment_after_the_cancellation_is_refunded_once(shop: Shop, way: Way) -> None:
    await shop.behave(is_paused=True)
    order_id, payment_id = await shop.paid(way, balance=100)
    await shop.until_charged(payment_id)
    cancelled = await shop.post("orders", f"/orders/{order_id}/cancel", {"reason": "changed my mind"})
    assert cancelled.json()["state"] == "CANCELLED"
    refused = await shop.pay(order_id)
    assert (refused.status_code, refused.json()["code"]) == (409, "ORDER_CANCELLED")
    await shop.behave()
    await shop.until_payments(order_id, "REFUNDED")
    # However often the refund is requested, also by other events, and whatever the provider reports then.
    [due] = [
        event
        for event in await events_in(shop.cluster, Topic.ORDERS)
        if isinstance(event, OrderEvent) and (event.order_id, event.kind) == (order_id, Kind.REFUND_DUE)
    ]
    others = [replace(due, event_id=new_id()) for _ in range(2)]
    for event in (due, *others):
        await shop.producer.send(message_of(event), sharding_key=order_id)
    last = await shop.call_back(payment_id, CallbackKind.PAID, _TEA + 1000 - 100)
    assert last.json()["is_first"] is False

    await shop.forget(*others)
    await shop.check()
    ledger = "SELECT kind, amount FROM provider.ledger WHERE payment_id = %s ORDER BY entry"
    assert await shop.rows(ledger, payment_id) == [("CHARGE", 1550), ("REFUND", 1550)]
    assert (await shop.events(order_id, Topic.PAYMENTS))[Kind.PAYMENT_REFUNDED] == 1


@pytest.mark.parametrize("way", Way)
async def test_a_declined_payment_is_followed_by_another(shop: Shop, way: Way) -> None:
    await shop.behave(decline_rate=1, is_paused=True)
    order_id, payment_id = await shop.paid(way)
    refused = await shop.pay(order_id)
    assert (refused.status_code, refused.json()["code"]) == (409, "PAYMENT_EXISTS")
    await shop.until_charged(payment_id)
    await shop.behave()
    await shop.until_payments(order_id, "DECLINED")
    contradicting = await shop.call_back(payment_id, CallbackKind.PAID, _TEA + 1000)
    assert (contradicting.status_code, contradicting.json()["code"]) == (409, "PAYMENT_DIFFERS")
    assert (await shop.pay(order_id)).json()["state"] == "CREATED"
    await shop.until_payments(order_id, "DECLINED", "PAID")
    await shop.until_state(order_id, "PAID")


@pytest.mark.parametrize("way", Way)
async def test_with_nothing_left_to_pay_the_provider_is_not_needed(shop: Shop, way: Way) -> None:
    order_id, payment_id = await shop.paid(way, balance=_TEA + 1000)
    assert await shop.payment_states(order_id) == ["PAID"]
    await shop.until_state(order_id, "PAID")
    assert await shop.rows("SELECT * FROM provider.charges WHERE payment_id = %s", payment_id) == []


async def test_a_payment_of_another_user_or_order_is_refused(shop: Shop) -> None:
    order_id, payment_id = await shop.paid(Way.OUTBOX)
    other = await shop.place(Way.OUTBOX, balance=_TEA + 1000)
    for answer, code in [
        (await shop.pay(other, user_id="alan"), "ORDER_UNKNOWN"),
        (await shop.pay(new_id()), "ORDER_UNKNOWN"),
        (await shop.pay(other, payment_id), "PAYMENT_DIFFERS"),
        # Not another way to write the id of an order.
        *[(await shop.pay(each), "BAD_REQUEST") for each in (f"{other}?again", f"../orders/{other}", "")],
        (await shop.pay(other, "a b"), "BAD_REQUEST"),
    ]:
        assert (answer.is_client_error, answer.json()["code"]) == (True, code)
    (await shop.pay(other)).raise_for_status()


async def test_an_order_paid_twice_by_events_is_credited_once(shop: Shop) -> None:
    """The inbox recognises events; the record of an order recognises the order."""
    order_id, _ = await shop.paid(Way.TRANSACTION)
    await shop.until_state(order_id, "PAID")
    await shop.check()
    [paid] = [
        event
        for event in await events_in(shop.cluster, Topic.ORDERS)
        if (event.order_id, event.kind) == (order_id, Kind.ORDER_PAID)
    ]
    before = [await shop.get("points", "/points/ada"), await shop.get("users", "/users/ada")]
    other = replace(paid, event_id=new_id())
    for event in (paid, other):
        await shop.producer.send(message_of(event), sharding_key=order_id)

    async def is_handled_by(group: str) -> bool:
        query = f"SELECT count(*) FROM {group}.kourou_idempotence WHERE message_key LIKE %s"
        return await shop.rows(query, f"%{other.event_id}%") == [(1,)]

    for group in ("points", "users"):
        await until(lambda group=group: is_handled_by(group))
    await shop.forget(other)
    assert await shop.rows("SELECT repeats FROM log.events WHERE event_id = %s", paid.event_id) == [(1,)]
    assert [await shop.get("points", "/points/ada"), await shop.get("users", "/users/ada")] == before


async def test_a_message_that_is_no_event_does_not_stop_the_log(shop: Shop) -> None:
    order_id, _ = await shop.paid(Way.OUTBOX)
    timeless = PaymentDue(kind=Kind.PAYMENT_DUE, order_id=order_id, way=Way.OUTBOX, at="tomorrow")
    for body in (b"?", b"{}", b'{"kind": "ORDER_PAID"}', encode(timeless)):
        await shop.producer.send(Message(Topic.ORDERS, body, tags="JUNK"), sharding_key=order_id)
    await shop.until_state(order_id, "PAID")


async def test_charges_and_refunds_are_made_once(shop: Shop) -> None:
    """The provider, by itself: repeats, wrong amounts, refunds of what was not paid."""
    await shop.behave(is_paused=True)
    order_id, payment_id = await shop.paid(Way.OUTBOX)
    await shop.until_charged(payment_id)
    amount = _TEA + 1000
    charge = {"payment_id": payment_id, "amount": amount, "callback": "http://127.0.0.1:1/"}
    assert (await shop.post("provider", "/charges", charge)).json()["state"] == "ACCEPTED"
    for path, body, status in [
        ("/charges", {**charge, "amount": amount + 1}, 409),
        ("/charges", {**charge, "amount": 0}, 422),
        ("/refunds", {"payment_id": payment_id, "amount": amount}, 409),
        ("/refunds", {"payment_id": payment_id, "amount": amount + 1}, 409),
        ("/refunds", {"payment_id": new_id(), "amount": amount}, 404),
    ]:
        answer = await shop.post("provider", path, body)
        assert (path, answer.status_code, bool(answer.json()["error"])) == (path, status, True)
    await shop.behave()
    await shop.until_state(order_id, "PAID")


async def test_a_wrong_behaviour_is_refused_and_named(shop: Shop) -> None:
    url = f"http://{shop.settings.address('provider')}/behaviour"
    for changes in ({"delay_ms": -1}, {"speed": 2}):
        answer = await shop.http.put(url, json=changes)
        assert answer.status_code == 422
        assert next(iter(changes)) in answer.json()["error"]
    assert await shop.get("provider", "/behaviour") == _QUIET


@pytest.mark.slow
@pytest.mark.parametrize("point", [each for each in KillPoint if each.name.startswith("PROVIDER_")])
async def test_a_killed_provider_goes_on(shop: Shop, point: KillPoint) -> None:
    """Killed at each of its steps: its charges, callbacks and behaviour are there when it comes back."""
    behaviour = {"delay_ms": 100, "repeats": 2}
    is_refund = point is KillPoint.PROVIDER_REFUNDED
    await shop.behave(**behaviour, is_paused=is_refund)
    folder = Path(shop.provider.file.parent / "kill-points")
    arm(folder, point)
    placed = [(await shop.place(way), new_id()) for way in (*Way, *Way)]
    for order_id, payment_id in placed:
        (await shop.pay(order_id, payment_id)).raise_for_status()
    cancelled = placed[:2] if is_refund else []
    if is_refund:
        await shop.until_charged(*(payment_id for _, payment_id in placed))
        for order_id, _ in cancelled:
            await shop.post("orders", f"/orders/{order_id}/cancel", {"reason": "changed my mind"})
        await shop.behave(**behaviour)
    await shop.provider.wait_killed()
    assert is_hit(folder, point)
    await shop.provider.start()
    assert await shop.get("provider", "/behaviour") == {**_QUIET, **behaviour}
    await shop.check()
    states = [await shop.state(order_id) for order_id, _ in placed]
    assert states == ["CANCELLED"] * len(cancelled) + ["PAID"] * (4 - len(cancelled))


@pytest.mark.slow
async def test_buyers_that_were_killed_repeat_their_orders(shop: Shop) -> None:
    """The same seed again: no new order, no new payment."""
    intents = {seed: {planned_order(seed, number).intent for number in range(20)} for seed in range(200)}
    # Others would wait for the time to pay to be over.
    seed = next(seed for seed in count() if Intent.NEVER_PAY not in intents[seed])
    counts = []
    for _ in range(2):
        calls = Calls(shop.settings)
        buyers = Buyers(calls, seed=seed, pay_within_s=900)
        await buyers.run(orders=20, buyers=5)
        await calls.close()
        assert buyers.surprises == []
        assert buyers.counts["settled"] == buyers.counts["ordered"] >= 20
        await shop.check()
        counts.append(
            await shop.rows(
                "SELECT (SELECT count(*) FROM orders.orders), (SELECT count(*) FROM payments.payments)"
            )
        )
    assert counts[0] == counts[1]
