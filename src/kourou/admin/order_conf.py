"""The order configuration of a topic: the number of queues of each broker, online or not.

Stored in the KV configuration of every name server, as `broker-a:4;broker-b:4`.
"""

from __future__ import annotations

from typing import Final

from kourou.admin.namesrvs import delete_kv_config, get_kv_config, put_kv_config
from kourou.admin.session import Admin
from kourou.admin.targets import Outcome
from kourou.errors import ResponseError
from kourou.protocol.codes import ResponseCode

ORDER_TOPIC_CONFIG: Final = "ORDER_TOPIC_CONFIG"


async def order_conf(admin: Admin, topic: str) -> str:
    """The order configuration of a topic. ResponseError QUERY_NOT_FOUND if it has none."""
    return await get_kv_config(admin, ORDER_TOPIC_CONFIG, topic)


async def set_order_conf(admin: Admin, topic: str, conf: str) -> list[Outcome]:
    """Write it to all name servers."""
    return await put_kv_config(admin, ORDER_TOPIC_CONFIG, topic, conf)


async def add_order_conf(admin: Admin, topic: str, broker_name: str, queues: int) -> str:
    """Set the entry of one broker and keep those of others; returns the whole configuration."""
    try:
        old = await order_conf(admin, topic)
    except ResponseError as error:
        if error.code != ResponseCode.QUERY_NOT_FOUND:
            raise
        old = ""
    entries = {entry.partition(":")[0]: entry for entry in old.split(";") if entry}
    entries[broker_name] = f"{broker_name}:{queues}"
    whole = ";".join(entries[name] for name in sorted(entries))
    await set_order_conf(admin, topic, whole)
    return whole


async def delete_order_conf(admin: Admin, topic: str) -> list[Outcome]:
    """Delete it from all name servers."""
    return await delete_kv_config(admin, ORDER_TOPIC_CONFIG, topic)
