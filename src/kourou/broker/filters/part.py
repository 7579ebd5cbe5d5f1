"""FiltersPart: ends the processes of filters when the broker stops."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kourou.broker.part import BrokerPart

if TYPE_CHECKING:
    from kourou.broker.filters.plugin_host import PluginHost


class FiltersPart(BrokerPart):
    """Processes start when a consumer first uses their filter."""

    def __init__(self, plugins: PluginHost) -> None:
        self._plugins = plugins

    async def stop(self, timeout_ms: int) -> None:
        await self._plugins.stop()
