"""NamesrvState: what the processors of a name server share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from kourou.config import NamesrvConfig
from kourou.namesrv.disk_worker import DiskWorker
from kourou.namesrv.kv_config import KvConfig, save_kv_config
from kourou.namesrv.min_broker_id import MinBrokerIdChange
from kourou.namesrv.route_info import RouteInfo
from kourou.namesrv.route_tables import RouteSettings
from kourou.namesrv.route_views import RouteViews
from kourou.transport.request import Request

# Milliseconds of a clock that only goes forward: a corrected wall clock must not expire brokers.
Clock = Callable[[], int]


class NamesrvState:
    """Route tables, KV configuration, the configuration now in force, and the way to the disk."""

    def __init__(
        self,
        config: NamesrvConfig,
        kv_config: KvConfig,
        *,
        clock: Clock,
        disk: DiskWorker,
        on_min_broker_id_changed: Callable[[MinBrokerIdChange], None],
    ) -> None:
        self.config = config
        self.kv_config = kv_config
        self.clock = clock
        self.disk = disk
        self.started_ms = clock()
        self.routes = RouteInfo(route_settings(config), on_min_broker_id_changed=on_min_broker_id_changed)
        self.views = RouteViews(self.routes.tables)

    @property
    def holds_routes_back(self) -> bool:
        """Whether routes are not given yet (`needWaitForService`): just started, half of the brokers are
        not known, and clients would take that for the route."""
        config = self.config
        waited_ms = self.clock() - self.started_ms
        return config.need_wait_for_service and waited_ms < config.wait_seconds_for_service * 1000

    def change_config(self, config: NamesrvConfig) -> None:
        """Go by another configuration from now on. Address, TLS and files are read at start only."""
        self.config = config
        if route_settings(config) != self.routes.tables.settings:
            self.routes.tables.change_settings(route_settings(config))

    def save_kv_and_reply(self, request: Request) -> None:
        """Answer when the KV configuration, as it is now, is on disk."""
        path, text = self.config.kv_config_path, self.kv_config.to_json()
        if path is None:
            request.reply()
        else:
            self.disk.reply_after(request, lambda: save_kv_config(Path(path), text))


def route_settings(config: NamesrvConfig) -> RouteSettings:
    """What of the configuration changes routes."""
    return RouteSettings(
        support_acting_master=config.support_acting_master,
        notify_min_broker_id_changed=config.notify_min_broker_id_changed,
        delete_topic_with_broker_registration=config.delete_topic_with_broker_registration,
    )
