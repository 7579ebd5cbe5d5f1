"""Spark pipelines that publish their progress."""

from __future__ import annotations

from typing import Final

from kourou.admin.pipelines import PipelineItem, pipelines
from kourou.admin.session import command_line
from kourou.console.endpoints import Call, Endpoint, NoBody, NoQuery, Read
from kourou.console.paging import Page
from kourou.protocol.pipeline_status import PIPELINES_TOPIC


async def _pipelines(call: Call[NoQuery, NoBody]) -> Page[PipelineItem]:
    items = await call.view.shared("pipelines", lambda: pipelines(call.admin))
    commands = [command_line(call.admin.namesrvs, "printMsg", "-t", PIPELINES_TOPIC)]
    return Page(items=items, total=len(items), commands=commands)


ENDPOINTS: Final[tuple[Endpoint, ...]] = (
    Read(
        path="/pipelines",
        summary="Spark pipelines that publish their progress",
        handler=_pipelines,
        returns=Page[PipelineItem],
    ),
)
