"""provider: HTTP, and the callbacks that it makes.

POST     /charges      {payment_id, amount, callback}: charge a payment, once; the result is called back
POST     /refunds      {payment_id, amount}: pay it back, once
GET, PUT /behaviour    {delay_ms, repeats, decline_rate, is_paused}
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import asdict
from typing import Any, Final

from pydantic import BaseModel, Field

from webshop.callbacks import SIGNATURE, Callback, sign
from webshop.errors import Code, RefusedError, refuse_if
from webshop.kit.database import AWAY, Row
from webshop.kit.http_client import HttpClient, HttpError
from webshop.kit.kill_points import KillPoint, kill_point
from webshop.kit.service import Service
from webshop.provider import domain, tables

_log = logging.getLogger(__name__)

service = Service("provider", tables=tables.TABLES)

_MAX_CALLS: Final = 32
_CALL_TIMEOUT_S: Final = 2.0
# A callback without an answer is repeated after this time; longer than a call may take.
_LEASE_S: Final = 3.0
_MAX_WAIT_S: Final = 0.5
_MIN_WAIT_S: Final = 0.005


class Refund(BaseModel):
    """A payment to pay back."""

    payment_id: str
    amount: int = Field(gt=0)


class Charge(Refund):
    """A payment to charge."""

    callback: str = Field(pattern="^http://[^/]+/")


@service.app.post("/charges")
async def charge(wanted: Charge) -> dict[str, Any]:
    """Accept a charge; a repeated request changes nothing."""
    async with service.database.transaction() as connection:
        planned = domain.planned_callbacks(wanted.payment_id, await tables.read_behaviour(connection))
        await tables.insert_charge(connection, wanted.payment_id, wanted.amount, wanted.callback, planned)
        stored = _checked(wanted, await tables.find_charge(connection, wanted.payment_id))
    kill_point(KillPoint.PROVIDER_ACCEPTED)
    callbacks.wake()
    return stored


@service.app.post("/refunds")
async def refund(wanted: Refund) -> dict[str, Any]:
    """Pay a charge back; a repeated request changes nothing."""
    async with service.database.transaction() as connection:
        await tables.refund(connection, wanted.payment_id)
        stored = _checked(wanted, await tables.find_charge(connection, wanted.payment_id))
        refuse_if(
            stored["state"] != "REFUNDED",
            Code.PAYMENT_DIFFERS,
            f"payment {wanted.payment_id} is {stored['state']}; only a paid one can be refunded",
        )
    kill_point(KillPoint.PROVIDER_REFUNDED)
    return stored


def _checked(wanted: Refund, stored: Row | None) -> dict[str, Any]:
    """The charge, if it is the one that is meant; else the transaction is rolled back."""
    named = f"payment {wanted.payment_id}"
    if stored is None:
        raise RefusedError(Code.PAYMENT_UNKNOWN, f"{named} was never charged", status=404)
    refuse_if(
        wanted.amount != stored.amount,
        Code.WRONG_AMOUNT,
        f"{named} was charged with {stored.amount} cents, not {wanted.amount}",
    )
    return dict(stored._asdict())


@service.app.get("/behaviour")
async def show_behaviour() -> dict[str, Any]:
    """How the provider behaves."""
    async with service.database.transaction() as connection:
        return asdict(await tables.read_behaviour(connection))


@service.app.put("/behaviour")
async def change_behaviour(changes: dict[str, Any]) -> dict[str, Any]:
    """Change some or all of it: a pause at once, the rest from the next charge on."""
    async with service.database.transaction() as connection:
        try:
            behaviour = (await tables.read_behaviour(connection)).changed(changes)
        except ValueError as error:
            raise RefusedError(Code.BAD_REQUEST, f"behaviour: {error}", status=422) from None
        await tables.write_behaviour(connection, behaviour)
    callbacks.wake()
    return asdict(behaviour)


class Callbacks:
    """Makes the callbacks that are due, in parallel."""

    def __init__(self) -> None:
        self._woken = asyncio.Event()
        self._running = 0
        self._answered: list[str] = []

    def wake(self) -> None:
        """Something may be due earlier than expected."""
        self._woken.set()

    async def run(self) -> None:
        """Make callbacks until this is cancelled."""
        client = HttpClient()
        try:
            async with asyncio.TaskGroup() as calls:
                while True:
                    self._woken.clear()
                    due, wait_s = await self._claim()
                    for each in due:
                        calls.create_task(self._call(client, each), name=each.callback_id)
                    await asyncio.sleep(_MIN_WAIT_S)  # what comes together is claimed together
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(self._woken.wait(), wait_s)
        finally:
            await client.close()

    async def _claim(self) -> tuple[list[Row], float]:
        """What is due now, and how long to wait then."""
        answered, self._answered = self._answered, []
        limit = _MAX_CALLS - self._running
        try:
            async with service.database.transaction() as connection:
                await tables.delete_callbacks(connection, answered)
                if limit <= 0 or (await tables.read_behaviour(connection)).is_paused:
                    return [], _MAX_WAIT_S
                due = await tables.claim_due(connection, limit=limit, lease_s=_LEASE_S)
                next_s = await tables.next_due_s(connection)
        except AWAY as error:
            _log.warning("callbacks have to wait: %s", error)
            return [], _MAX_WAIT_S  # what was answered is reported again after its lease
        if due:
            kill_point(KillPoint.PROVIDER_CALLING)
        return due, _MAX_WAIT_S if next_s is None else max(0.0, min(next_s, _MAX_WAIT_S))

    async def _call(self, client: HttpClient, due: Row) -> None:
        """Make one callback. Without an answer it stays, and is due again after its lease."""
        body = Callback(due.callback_id, due.payment_id, due.kind, due.amount).encode()
        headers = {SIGNATURE: sign(service.settings.provider_secret, body)}
        self._running += 1
        try:
            response = await client.request(
                "POST", due.callback, body, headers=headers, timeout_s=_CALL_TIMEOUT_S
            )
        except HttpError as error:
            _log.info("callback %s: no answer (%s); repeated later", due.callback_id, error)
            return
        finally:
            self._running -= 1
        kill_point(KillPoint.PROVIDER_CALLED)
        if response.status >= 500:
            _log.info("callback %s: %d; repeated later", due.callback_id, response.status)
            return
        if response.status >= 400:
            _log.warning("callback %s is refused: %s", due.callback_id, response.body.decode())
        self._answered.append(due.callback_id)
        self.wake()


callbacks = Callbacks()
service.background(callbacks.run)
