"""Spark pipelines that publish their progress."""

from __future__ import annotations

from typing import Final

from kourou.admin.pipelines import PipelineItem, pipelines
from kourou.console.endpoints import Call, Endpoint, NoBody, NoQuery, Read
from kourou.console.paging import Page


async def _pipelines(call: Call[NoQuery, NoBody]) -> Page[PipelineItem]:
    items = await pipelines(call.admin)
    return Page(items=items, total=len(items))


ENDPOINTS: Final[tuple[Endpoint, ...]] = (
    Read(
        path="/pipelines",
        summary="Spark pipelines that publish their progress",
        handler=_pipelines,
        returns=Page[PipelineItem],
    ),
)
