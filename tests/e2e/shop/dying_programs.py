"""Processes that die at their kill points: `dying_programs.py emit|relay SETTINGS…`

    emit    stores a fact and emits its event; the order is the name of the folder of kill points
    relay   the relay of the outbox

They are forked: to start so many programs would take seconds each. Prints how each has ended.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from webshop.events import Kind, PaymentEvent
from webshop.kit.database import Database
from webshop.kit.emit import TABLES, Emitter
from webshop.kit.kill_points import use_folder
from webshop.kit.relay import run_relay
from webshop.settings import Settings

FACTS = "CREATE TABLE IF NOT EXISTS facts (order_id text PRIMARY KEY)"


async def emit(settings: Settings) -> None:
    order_id = Path(settings.kill_points or "").name
    use_folder(settings.kill_points)
    database = Database(settings.database, "payments", pool_size=2)
    await database.open(TABLES, FACTS)
    emitter = Emitter("payments", settings, database)
    await emitter.start()
    async with emitter.unit() as unit:
        await unit.connection.execute("INSERT INTO facts VALUES (%s)", [order_id])
        unit.emit(
            PaymentEvent(
                kind=Kind.PAYMENT_PAID,
                order_id=order_id,
                way=settings.way_of(order_id),
                payment_id=order_id,
                user_id="ada",
                amount=1,
            )
        )
    await emitter.stop()
    await database.close()


def main(what: str, *paths: str) -> None:
    program = {"emit": emit, "relay": run_relay}[what]
    processes = []
    for path in paths:
        if (process := os.fork()) == 0:
            asyncio.run(program(Settings.load(path)))
            os._exit(0)
        processes.append(process)
    print(*(os.waitstatus_to_exitcode(os.waitpid(each, 0)[1]) for each in processes))


if __name__ == "__main__":
    main(*sys.argv[1:])
