"""SubscriptionGroupManager: the consumer groups of a broker, kept in `subscriptionGroup.json`.

With them go the forbidden bits of 5.x: which groups may not read which topics.
Not here: the current members of a group (consumers.py), its progress (offsets.py).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

import msgspec

from kourou.broker.tables.attributes import GROUP_ATTRIBUTES, apply_changes
from kourou.broker.tables.config_table import ConfigTable, describe_change, describe_fields
from kourou.protocol.bodies import SubscriptionGroupConfig, SubscriptionGroupWrapper
from kourou.protocol.names import (
    CID_ONSAPI_OWNER_GROUP,
    CID_ONSAPI_PERMISSION_GROUP,
    CID_ONSAPI_PULL_GROUP,
    CID_RMQ_SYS_PREFIX,
    CID_SYS_RMQ_TRANS,
    FILTERSRV_CONSUMER_GROUP,
    ONS_HTTP_PROXY_GROUP,
    SELF_TEST_CONSUMER_GROUP,
    TOOLS_CONSUMER_GROUP,
    group_problem,
)
from kourou.store.config_file import JsonConfigFile
from kourou.store.config_tables import SubscriptionGroupTable, load_table

if TYPE_CHECKING:
    from kourou.config.broker import BrokerConfig

_log = logging.getLogger(__name__)

GROUPS_MADE_AT_START: Final = (
    TOOLS_CONSUMER_GROUP,
    FILTERSRV_CONSUMER_GROUP,
    SELF_TEST_CONSUMER_GROUP,
    ONS_HTTP_PROXY_GROUP,
    CID_ONSAPI_PULL_GROUP,
    CID_ONSAPI_PERMISSION_GROUP,
    CID_ONSAPI_OWNER_GROUP,
    CID_SYS_RMQ_TRANS,
)
"""Groups that every broker has."""


class SubscriptionGroupManager(ConfigTable):
    """Groups by name. `table` and `forbidden_table` are to be changed through the methods only."""

    def __init__(
        self, file: JsonConfigFile, config: Callable[[], BrokerConfig], now_ms: Callable[[], int]
    ) -> None:
        super().__init__(file, now_ms)
        self._config = config
        self.table: dict[str, SubscriptionGroupConfig] = {}
        self.forbidden_table: dict[str, dict[str, int]] = {}
        # The dict's own method: each pull asks.
        self.get: Callable[[str], SubscriptionGroupConfig | None] = self.table.get

    def load(self) -> None:
        """Take over the file, and make the groups that every broker has."""
        stored = self._file.load_as(lambda raw: load_table(raw, SubscriptionGroupTable))
        if stored is not None:
            self.table.update(stored.subscription_group_table)
            self.forbidden_table.update(stored.forbidden_table)
            self.data_version = stored.data_version
        missing = [group for group in GROUPS_MADE_AT_START if group not in self.table]
        self.table.update((group, SubscriptionGroupConfig(group_name=group)) for group in missing)
        self.is_dirty = bool(missing)
        if missing and stored is not None:
            self._next_version()

    def snapshot(self) -> SubscriptionGroupTable:
        forbidden = {group: dict(bits) for group, bits in self.forbidden_table.items()}
        return SubscriptionGroupTable(dict(self.table), forbidden, self.data_version)

    def wrapper(self, groups: Iterable[str] | None = None) -> SubscriptionGroupWrapper:
        """These groups, or all, with their forbidden bits."""
        names = self.table if groups is None else set(groups)
        return SubscriptionGroupWrapper(
            {group: config for group, config in self.table.items() if group in names},
            {group: bits for group, bits in self.forbidden_table.items() if groups is None or group in names},
            self.data_version,
        )

    def follow(self, wrapper: SubscriptionGroupWrapper) -> None:
        """Take over a master's groups, and nothing else."""
        if wrapper.data_version == self.data_version:
            return
        self.table.clear()
        self.table.update(wrapper.subscription_group_table)
        self.forbidden_table.clear()
        self.forbidden_table.update(wrapper.forbidden_table)
        self.data_version = wrapper.data_version
        self.is_dirty = True

    def find(self, group: str) -> SubscriptionGroupConfig | None:
        """The group, made if it is not there and may be; None: there is no such group."""
        known = self.table.get(group)
        if known is not None or not self._may_create(group):
            return known
        created = SubscriptionGroupConfig(group_name=group)
        _log.info("group %s created on first use", group)
        self.table[group] = created
        self._next_version()
        return created

    def _may_create(self, group: str) -> bool:
        config = self._config()
        is_for_system = group.startswith(CID_RMQ_SYS_PREFIX) and config.enable_create_sys_group
        return (config.auto_create_subscription_group or is_for_system) and group_problem(group) is None

    def update(self, config: SubscriptionGroupConfig) -> None:
        """Make a group or change it; `config.attributes` are changes by signed key.

        RequestError: they are refused, nothing is changed.
        """
        old = self.table.get(config.group_name)
        current = None if old is None else old.attributes
        attributes = apply_changes(current, config.attributes, GROUP_ATTRIBUTES)
        new = msgspec.structs.replace(config, attributes=attributes)
        if old is None:
            _log.info("group created: %s", describe_fields(new))
        else:
            _log.info("group %s changed: %s", config.group_name, describe_change(old, new))
        self.table[config.group_name] = new
        self._next_version()

    def delete(self, group: str) -> bool:
        """Forget a group and its forbidden bits; False when it is not there."""
        bits = self.forbidden_table.pop(group, None)
        old = self.table.pop(group, None)
        if old is not None or bits is not None:
            _log.info(
                "group %s deleted: %s", group, "forbidden bits only" if old is None else describe_fields(old)
            )
            self._next_version()
        return old is not None

    # -- forbidden bits --------------------------------------------------------------------------

    def forbidden(self, group: str, topic: str) -> int:
        """The bits (PermName) that `group` does not have on `topic`."""
        topics = self.forbidden_table.get(group)
        return 0 if topics is None else topics.get(topic, 0)

    def update_forbidden(self, group: str, topic: str, perm: int, *, is_forbidden: bool) -> None:
        """Take a permission bit of a topic from a group, or give it back."""
        old = self.forbidden(group, topic)
        new = old | perm if is_forbidden else old & ~perm
        if new == old:
            return
        _log.info("group %s, topic %s: forbidden bits %d, were %d", group, topic, new, old)
        topics = self.forbidden_table.setdefault(group, {})
        if new:
            topics[topic] = new
        else:
            del topics[topic]
            if not topics:
                del self.forbidden_table[group]
        self._next_version()
