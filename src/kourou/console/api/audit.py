"""The audit log, newest first."""

from __future__ import annotations

import asyncio
import shlex
from itertools import islice
from typing import Final

from kourou.console.audit import AuditLog, AuditRecord
from kourou.console.endpoints import Call, Endpoint, NoBody, Read, Role
from kourou.console.paging import Page, PageQuery

_MAX_RECORDS: Final = 10_000
"""Older records are in the file only."""


async def _audit(call: Call[PageQuery, NoBody]) -> Page[AuditRecord]:
    return await asyncio.to_thread(_page, call.context.audit, call.query)


def _page(audit: AuditLog, query: PageQuery) -> Page[AuditRecord]:
    wanted = query.search.lower()
    found = [
        record
        for record in islice(audit.newest_first(), _MAX_RECORDS)
        if not wanted or wanted in f"{record.user} {record.path} {' '.join(record.effects)}".lower()
    ]
    return Page(
        items=found[query.offset : query.offset + query.limit],
        total=len(found),
        commands=[shlex.join(["tail", "-n", str(query.limit), str(audit.path)])],
    )


ENDPOINTS: Final[tuple[Endpoint, ...]] = (
    Read(
        path="/audit",
        summary="The changes that were made through the console",
        role=Role.ADMINISTRATOR,
        query=PageQuery,
        handler=_audit,
        returns=Page[AuditRecord],
    ),
)
