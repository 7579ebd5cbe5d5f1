"""PluginHost: the filters that consumers may name, and the verdicts that they give.

A subscription of type PLUGIN has the expression `NAME PARAMETERS`. Clients that know the types TAG and SQL92
only write `PLUGIN NAME PARAMETERS` as SQL92, which no SQL92 expression looks like. NAME is an entry point in
the group `kourou.filters`, or `json`, which comes with Kourou.

No message is lost because of a filter:

- a message that a filter fails on is delivered as if it had passed, counted and logged;
- a call that takes too long, or ends the process, is repeated for halves of the batch, until the message that
  is the cause is alone: the filter fails on it;
- a filter that is slow or broken is fenced: for some time pulls by it are rejected with SYSTEM_BUSY, and
  consumers stay where they are.

Not here: reading messages (pull/plugin_matcher.py), the process (filter_process.py).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kourou.broker.filters.filter_process import FilterProcess, FilterProcessError, FilterStartError
from kourou.errors import RequestError
from kourou.filters.calls import FAILED, NO, YES
from kourou.protocol.codes import ResponseCode
from kourou.wording import suggestion

if TYPE_CHECKING:
    from kourou.broker.settings import LiveConfig

PLUGIN: Final = "PLUGIN"
"""The expression type of subscriptions by these filters."""
ENTRY_POINTS: Final = "kourou.filters"
_BUILT_IN: Final = {"json": "kourou.filters.json_path:JsonFilter"}
_EVERY: Final = "*"
_PREFIX: Final = PLUGIN + " "
_MAX_FAILURES_IN_A_ROW: Final = 20
"""So many messages in a row that a filter fails on, and it is taken for broken."""
_VERDICTS: Final = re.compile(bytes([*b"[", NO, YES, *b"]"]))
_MAX_INCIDENTS_OF_A_BATCH: Final = 20
"""A search for the messages of a batch that are the cause ends here: 9 find one among 256, 17 find two."""
_INCIDENTS: Final = 3
_INCIDENT_WINDOW_MS: Final = 60_000
_LOG_EVERY_MS: Final = 60_000
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PluginFilter:
    """A filter that a subscription names, and its parameters."""

    name: str
    parameters: str


@dataclass(slots=True)
class PluginCounts:
    """What a filter has done since the broker started, in messages; `incidents`: calls that took too long or
    ended the process."""

    passed: int = 0
    rejected: int = 0
    failed: int = 0
    incidents: int = 0

    def by_verdict(self) -> dict[str, int]:
        """Messages, as metrics name them."""
        return {"passed": self.passed, "rejected": self.rejected, "failed": self.failed}


class _Plugin:
    """One filter that is in use."""

    def __init__(self, name: str, process: FilterProcess) -> None:
        self.name = name
        self.process = process
        self.counts = PluginCounts()
        self.failures_in_a_row = 0
        self.incidents_ms: list[int] = []
        self.fenced_until_ms = 0
        self.reason = ""
        self.logged_ms: int | None = None


def plugin_expression(expression: str | None, expression_type: str | None) -> str | None:
    """What a subscription asks of a filter of the operator's; None if it is of another type."""
    text = expression or ""
    if expression_type == PLUGIN:
        return text.strip()
    return text[len(_PREFIX) :].strip() if expression_type == "SQL92" and text.startswith(_PREFIX) else None


class PluginHost:
    """The filters of one broker. Owned by the loop."""

    def __init__(self, config: LiveConfig, monotonic_ms: Callable[[], int]) -> None:
        self._config = config
        self._monotonic_ms = monotonic_ms
        self._factories: dict[str, str] | None = None
        self._plugins: dict[str, _Plugin] = {}

    # -- names -----------------------------------------------------------------------------------

    def find(self, text: str) -> PluginFilter:
        """The filter that an expression `NAME PARAMETERS` names. RequestError: there is none."""
        name, _, parameters = text.partition(" ")
        if name not in self._allowed():
            known = sorted(self._allowed())
            there = suggestion(name, known) or f"; there are: {', '.join(known) or 'none (filterPlugins)'}"
            raise _parse_failed(f"no filter {name[:100]!r} is installed at this broker{there}")
        return PluginFilter(name, parameters.strip())

    def _allowed(self) -> dict[str, str]:
        """Factories by name; the key filterPlugins may leave some out."""
        if self._factories is None:
            from importlib.metadata import entry_points  # takes longer than the rest of a start

            found = {point.name: point.value for point in entry_points(group=ENTRY_POINTS)}
            self._factories = {**_BUILT_IN, **found}
        allowed = {name.strip() for name in self._config.current.filter_plugins.split(",")}
        if _EVERY in allowed:
            return self._factories
        return {name: factory for name, factory in self._factories.items() if name in allowed}

    # -- verdicts --------------------------------------------------------------------------------

    async def check(self, wanted: PluginFilter) -> None:
        """RequestError if the filter does not understand its parameters, or cannot be started."""
        await self.judge(wanted, ())

    async def judge(self, wanted: PluginFilter, records: Sequence[bytes]) -> list[bool]:
        """Whether the consumer gets each record. RequestError: not now, or never with these parameters."""
        plugin = self._plugin(wanted.name)
        try:
            verdicts = await self._verdicts(plugin, wanted.parameters, records)
        except FilterStartError as error:
            self._fence(plugin, str(error))
            raise self._fenced(plugin) from None
        counts = plugin.counts
        for verdict in verdicts:
            if verdict == FAILED:
                counts.failed += 1
            elif verdict == YES:
                counts.passed += 1
            else:
                counts.rejected += 1
        return [bool(verdict) for verdict in verdicts]

    async def _verdicts(self, plugin: _Plugin, parameters: str, records: Sequence[bytes]) -> bytes:
        try:
            return await self._call(plugin, parameters, records)
        except FilterStartError:
            raise
        except FilterProcessError as error:
            self._incident(plugin, str(error))
            most = plugin.counts.incidents + _MAX_INCIDENTS_OF_A_BATCH - 1
            return await self._halves(plugin, parameters, records, most)

    def _plugin(self, name: str) -> _Plugin:
        plugin = self._plugins.get(name)
        if plugin is None:
            factory = self._allowed().get(name)
            if factory is None:  # not allowed any more
                raise _parse_failed(f"no filter {name!r} is installed at this broker (filterPlugins)")
            process = FilterProcess(name, factory, self._config.current.filter_plugin_memory_mb)
            plugin = self._plugins[name] = _Plugin(name, process)
        if plugin.fenced_until_ms > self._monotonic_ms():
            raise self._fenced(plugin)
        return plugin

    async def _call(self, plugin: _Plugin, parameters: str, records: Sequence[bytes]) -> bytes:
        timeout_s = self._config.current.filter_plugin_timeout_millis / 1000
        try:
            reply = await plugin.process.call(parameters, records, timeout_s)
        except FilterProcessError:
            plugin.counts.incidents += 1
            raise
        if reply.bad_parameters is not None:
            words = f"the filter {plugin.name} does not accept its parameters: {reply.bad_parameters}"
            raise _parse_failed(words)
        if reply.failure is not None:
            self._failed(plugin, reply.verdicts, reply.failure)
        elif records:
            plugin.failures_in_a_row = 0
        if reply.warning is not None:
            self._log(plugin, f"it fails on several messages at once, which takes time: {reply.warning}")
        return reply.verdicts

    async def _halves(self, plugin: _Plugin, parameters: str, records: Sequence[bytes], most: int) -> bytes:
        """Verdicts of records of which one or more end the process, or take it too long. With `most`
        incidents of the filter, RequestError."""
        if len(records) < 2:
            return bytes([FAILED]) * len(records)
        verdicts, middle = b"", len(records) // 2
        for half in (records[:middle], records[middle:]):
            try:
                verdicts += await self._call(plugin, parameters, half)
            except FilterStartError:
                raise
            except FilterProcessError as error:
                if plugin.counts.incidents >= most:
                    self._fence(plugin, str(error))
                    raise self._fenced(plugin) from None  # these messages are not delivered
                verdicts += await self._halves(plugin, parameters, half, most)
        return verdicts

    # -- the fence -------------------------------------------------------------------------------

    def _incident(self, plugin: _Plugin, reason: str) -> None:
        """A call took too long, or ended the process."""
        now_ms = self._monotonic_ms()
        plugin.incidents_ms = [ms for ms in plugin.incidents_ms if now_ms - ms < _INCIDENT_WINDOW_MS] + [
            now_ms
        ]
        self._log(plugin, reason)
        if len(plugin.incidents_ms) >= _INCIDENTS:
            plugin.incidents_ms.clear()
            self._fence(plugin, reason)

    def _failed(self, plugin: _Plugin, verdicts: bytes, failure: str) -> None:
        """The filter raised an exception for some messages."""
        runs = [len(run) for run in _VERDICTS.split(verdicts)]
        runs[0] += plugin.failures_in_a_row
        plugin.failures_in_a_row = runs[-1]
        self._log(plugin, f"it fails on messages, which are delivered: {failure}")
        if max(runs) >= _MAX_FAILURES_IN_A_ROW:
            plugin.failures_in_a_row = 0
            self._fence(plugin, f"it failed on {_MAX_FAILURES_IN_A_ROW} messages in a row: {failure}")
            raise self._fenced(plugin)  # these messages are not delivered

    def _fence(self, plugin: _Plugin, reason: str) -> None:
        fence_ms = self._config.current.filter_plugin_fence_millis
        plugin.reason = reason
        plugin.fenced_until_ms = self._monotonic_ms() + fence_ms
        _log.error(
            "filter %s is fenced for %d ms, pulls by it are rejected meanwhile: %s",
            plugin.name,
            fence_ms,
            reason,
        )

    def _fenced(self, plugin: _Plugin) -> RequestError:
        left_s = (plugin.fenced_until_ms - self._monotonic_ms()) / 1000
        return RequestError(
            ResponseCode.SYSTEM_BUSY,
            f"the filter {plugin.name} is fenced for {left_s:.0f} s more: {plugin.reason}",
        )

    def _log(self, plugin: _Plugin, reason: str) -> None:
        now_ms = self._monotonic_ms()
        if plugin.logged_ms is None or now_ms - plugin.logged_ms >= _LOG_EVERY_MS:
            plugin.logged_ms = now_ms
            _log.warning("filter %s: %s", plugin.name, reason)

    # -- life ------------------------------------------------------------------------------------

    def counts(self) -> dict[str, PluginCounts]:
        """By filter, those that were used."""
        return {name: plugin.counts for name, plugin in self._plugins.items()}

    def fenced(self) -> dict[str, str]:
        """The filters that are fenced now, and why."""
        now_ms = self._monotonic_ms()
        return {
            name: plugin.reason for name, plugin in self._plugins.items() if plugin.fenced_until_ms > now_ms
        }

    async def stop(self) -> None:
        """End all processes."""
        for plugin in self._plugins.values():
            await plugin.process.stop()


def _parse_failed(reason: str) -> RequestError:
    # Apache's words come first: people search for them.
    return RequestError(
        ResponseCode.SUBSCRIPTION_PARSE_FAILED, f"parse the consumer's subscription failed: {reason}"
    )
