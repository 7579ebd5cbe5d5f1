"""Fills a new shop with its catalogue."""

from __future__ import annotations

import psycopg

from webshop.running.catalogue import BALANCE, COUPONS, GOODS, NAMES


async def fill(database: str) -> None:
    """Put the goods, users and coupons in that are not there. The services have made their tables."""
    async with await psycopg.AsyncConnection.connect(database) as connection:
        cursor = connection.cursor()
        await cursor.executemany(
            "INSERT INTO goods.goods (goods_id, name, picture, price, delivered, stock) "
            "VALUES (%s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING",
            [(*each, each[-1]) for each in GOODS],
        )
        await cursor.executemany(
            "INSERT INTO users.users (user_id, name, opening_balance, balance, spent, level) "
            "VALUES (%s, %s, %s, %s, 0, 'BRONZE') ON CONFLICT DO NOTHING",
            [(name.lower(), name, BALANCE, BALANCE) for name in NAMES],
        )
        await cursor.executemany(
            "INSERT INTO coupons.coupons (coupon_id, user_id, value) "
            "VALUES (%s, %s, %s) ON CONFLICT DO NOTHING",
            [
                (f"{name.lower()}-{number}", name.lower(), value)
                for name in NAMES
                for number, value in enumerate(COUPONS, 1)
            ],
        )
