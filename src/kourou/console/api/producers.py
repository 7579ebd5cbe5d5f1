"""Producers: all connected ones by group and client; of brokers that cannot list them, one group by topic."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any, Final

import msgspec

from kourou.admin.connections import producer_connection
from kourou.console.api.places import mqadmin
from kourou.console.endpoints import Call, Endpoint, NoBody, Read
from kourou.console.paging import Page, PageQuery, cut_page
from kourou.protocol.versions import version_desc


class ProducerRow(msgspec.Struct, frozen=True, kw_only=True):
    """A client in a producer group."""

    group: str
    client_id: str
    addresses: list[str]
    """Of its connections, one to each broker."""
    language: str
    version: str
    brokers: list[str]
    """Those it is connected to."""
    last_update_ms: int
    """Its last heartbeat; 0 if unknown."""


_COLUMNS: Final[dict[str, Callable[[ProducerRow], Any]]] = {
    name: attrgetter(name) for name in ProducerRow.__struct_fields__
}


async def _producers(call: Call[PageQuery, NoBody]) -> Page[ProducerRow]:
    reading = await call.view.producers()
    rows: dict[tuple[str, str], ProducerRow] = {}
    for broker_name, table in sorted(reading.data.items()):
        for group, clients in sorted(table.items()):
            for client in clients:
                key = (group, client.client_id)
                known = rows.get(key)
                rows[key] = ProducerRow(
                    group=group,
                    client_id=client.client_id,
                    # Java's form of an address starts with a slash.
                    addresses=[*(known.addresses if known else ()), client.remote_ip.lstrip("/")],
                    language=client.language or "",
                    version=version_desc(client.version),
                    brokers=[*(known.brokers if known else ()), broker_name],
                    last_update_ms=max(client.last_update_timestamp, known.last_update_ms if known else 0),
                )
    return cut_page(
        [rows[key] for key in sorted(rows)],
        call.query,
        name=lambda row: f"{row.group} {row.client_id} {' '.join(row.addresses)}",
        columns=_COLUMNS,
        as_of=reading.as_of,
        problems=reading.problems,
        commands=[mqadmin(call, "producer", "-b", master.address) for master in await call.admin.masters()],
    )


class ProducerQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The parameters of one producer group."""

    topic: str
    """A topic whose brokers are asked."""


class ProducerClient(msgspec.Struct, frozen=True, kw_only=True):
    """A client of a producer group."""

    client_id: str
    address: str
    language: str
    version: str


class ProducerGroup(msgspec.Struct, frozen=True, kw_only=True):
    """The clients of one producer group, as one broker of the topic knows them."""

    group: str
    topic: str
    clients: list[ProducerClient]
    commands: list[str]


async def _producer(call: Call[ProducerQuery, NoBody]) -> ProducerGroup:
    group, topic = call.path["group"], call.query.topic
    found = await producer_connection(call.admin, group, topic)
    return ProducerGroup(
        group=group,
        topic=topic,
        clients=[
            ProducerClient(
                client_id=one.client_id,
                address=one.client_addr,
                language=one.language or "",
                version=version_desc(one.version),
            )
            for one in found
        ],
        commands=[mqadmin(call, "producerConnection", "-g", group, "-t", topic)],
    )


ENDPOINTS: Final[tuple[Endpoint, ...]] = (
    Read(
        path="/producers",
        summary="All connected producers, by group and client",
        query=PageQuery,
        handler=_producers,
        returns=Page[ProducerRow],
    ),
    Read(
        path="/producers/{group}",
        summary="The clients of one producer group, by a topic that it sends to",
        query=ProducerQuery,
        handler=_producer,
        returns=ProducerGroup,
    ),
)
