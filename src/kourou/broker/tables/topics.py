"""TopicConfigManager: the topics of a broker, kept in `topics.json`.

A topic's configuration is never changed in place: a new one takes its place in the table, so that
decisions can be compared by identity. Every change has a new DataVersion and goes to `on_change`, which
registers it with the name servers. At its start a broker creates the system topics that its table lacks.
Not here: the queues of a topic (store), requests for changes (topic_processor.py).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from kourou.broker.tables.attributes import (
    TOPIC_ATTRIBUTES,
    apply_changes,
    check_topic_attributes,
    parse_changes,
)
from kourou.broker.tables.config_table import ConfigTable, describe_change, describe_fields
from kourou.broker.tables.name_checks import MAX_QUEUE_NUMS, check_topic_name
from kourou.errors import RequestError
from kourou.protocol.bodies import TopicConfig, TopicConfigSerializeWrapper
from kourou.protocol.codes import PermName, ResponseCode
from kourou.protocol.names import (
    AUTO_CREATE_TOPIC_KEY_TOPIC,
    RMQ_SYS_BENCHMARK_TOPIC,
    RMQ_SYS_OFFSET_MOVED_EVENT,
    RMQ_SYS_SCHEDULE_TOPIC,
    RMQ_SYS_SELF_TEST_TOPIC,
    RMQ_SYS_TRANS_HALF_TOPIC,
    RMQ_SYS_TRANS_OP_HALF_TOPIC,
    SYNC_BROKER_MEMBER_GROUP_PREFIX,
    SYSTEM_TOPICS,
    TIMER_TOPIC,
    is_system_topic,
    reply_topic,
)
from kourou.protocol.pop.retry_topics import revive_topic
from kourou.protocol.priority import has_priorities
from kourou.store.config_file import JsonConfigFile
from kourou.store.config_tables import TopicConfigTable, load_table

if TYPE_CHECKING:
    from kourou.config.broker import BrokerConfig

_INHERIT: Final = int(PermName.INHERIT)
_READ_WRITE: Final = int(PermName.READ | PermName.WRITE)
_BENCHMARK_QUEUES: Final = 1024
_CLUSTER_QUEUES: Final = 16
# One for each delay level of Apache's default list.
_SCHEDULE_QUEUES: Final = 18

_log = logging.getLogger(__name__)


def default_topic_config(config: BrokerConfig) -> TopicConfig:
    """TBW102, which topics made by a send inherit from."""
    return _topic(AUTO_CREATE_TOPIC_KEY_TOPIC, config.default_topic_queue_nums, perm=_INHERIT | _READ_WRITE)


def system_topic_configs(config: BrokerConfig) -> list[TopicConfig]:
    """All of them, for a broker that is configured so."""
    cluster, broker = config.broker_cluster_name, config.broker_name
    topics = [
        _topic(RMQ_SYS_SELF_TEST_TOPIC, 1),
        _topic(RMQ_SYS_BENCHMARK_TOPIC, _BENCHMARK_QUEUES),
        _topic(cluster, _CLUSTER_QUEUES, perm=_inherited(config.cluster_topic_enable)),
        _topic(broker, 1, perm=_inherited(config.broker_topic_enable)),
        _topic(RMQ_SYS_OFFSET_MOVED_EVENT, 1),
        _topic(RMQ_SYS_SCHEDULE_TOPIC, _SCHEDULE_QUEUES),
        _topic(reply_topic(cluster), 1),
        _topic(revive_topic(cluster), config.revive_queue_num),
        _topic(SYNC_BROKER_MEMBER_GROUP_PREFIX + broker, 1, perm=_INHERIT),
        _topic(RMQ_SYS_TRANS_HALF_TOPIC, 1),
        _topic(RMQ_SYS_TRANS_OP_HALF_TOPIC, 1),
    ]
    if config.auto_create_topic_enable:
        topics.append(default_topic_config(config))
    if config.trace_topic_enable:
        topics.append(_topic(config.msg_trace_topic_name, 1))
    if config.timer_wheel_enable:
        topics.append(_topic(TIMER_TOPIC, 1))
    return topics


def _inherited(is_enabled: bool) -> int:
    return _INHERIT | _READ_WRITE if is_enabled else _INHERIT


def _topic(name: str, queue_nums: int, *, perm: int = _READ_WRITE) -> TopicConfig:
    return TopicConfig(topic_name=name, read_queue_nums=queue_nums, write_queue_nums=queue_nums, perm=perm)


class TopicConfigManager(ConfigTable):
    """Topics by name. `table` is to be changed through the methods only."""

    def __init__(
        self,
        file: JsonConfigFile,
        config: Callable[[], BrokerConfig],
        now_ms: Callable[[], int],
        on_change: Callable[[TopicConfig | None], None],
    ) -> None:
        super().__init__(file, now_ms)
        self._config = config
        self._on_change = on_change
        self._made_at_start: set[str] = set()
        self._derived: set[str] = set()
        self.watchers: list[Callable[[TopicConfig | None], None]] = []
        """Called with a topic that was made or changed; None: any may have changed."""
        self.on_delete: list[Callable[[str], None]] = []
        """Called with a topic that was deleted, before another one of its name can be created."""
        self.table: dict[str, TopicConfig] = {}
        # The dict's own method: each send asks.
        self.get: Callable[[str], TopicConfig | None] = self.table.get

    # -- the file --------------------------------------------------------------------------------

    def load(self) -> None:
        """Take over the file, and make the system topics that it does not have."""
        stored = self._file.load_as(lambda raw: load_table(raw, TopicConfigTable))
        if stored is not None:
            self.table.update(stored.topic_config_table)
            self.data_version = stored.data_version
        made = system_topic_configs(self._config())
        self._made_at_start = {topic.topic_name for topic in made}
        missing = [topic for topic in made if topic.topic_name not in self.table]
        if not missing:
            return
        self.table.update((topic.topic_name, topic) for topic in missing)
        self.is_dirty = True
        if stored is not None:
            # Name servers take an unchanged version for an unchanged table.
            self._next_version()

    def snapshot(self) -> TopicConfigTable:
        return TopicConfigTable(dict(self.table), self.data_version)

    def wrapper(
        self, topics: Iterable[str] | None = None, *, registered: bool = False
    ) -> TopicConfigSerializeWrapper:
        """These topics, or all. `registered`: with the permissions that routes show, which are those
        of the topic that the broker has too."""
        names = self.table if topics is None else topics
        table = {name: config for name in names if (config := self.table.get(name)) is not None}
        allowed = self._config().broker_permission
        if registered and allowed & _READ_WRITE != _READ_WRITE:
            table = {name: _with(config, perm=config.perm & allowed) for name, config in table.items()}
        return TopicConfigSerializeWrapper(topic_config_table=table, data_version=self.data_version)

    def follow(self, wrapper: TopicConfigSerializeWrapper) -> set[str]:
        """Take over a master's topics; the names of those that it has deleted.

        A derived topic stays until the master announces it: a table may be older than the topic. System
        topics are never deleted: masters of RocketMQ 4 do not announce all of theirs.
        """
        announced = wrapper.topic_config_table
        unannounced = {topic: self.table[topic] for topic in self._derived if topic not in announced}
        if wrapper.data_version == self.data_version and unannounced.keys() == self._derived:
            return set()
        gone = self.table.keys() - announced.keys() - unannounced.keys()
        self._derived = set(unannounced)
        self.table.clear()
        self.table.update({**announced, **unannounced})
        self.data_version = wrapper.data_version
        self.is_dirty = True
        self._notify(None)
        return {topic for topic in gone if not self.is_system(topic)}

    def is_derived(self, topic: str) -> bool:
        """Whether all that is known of a user's topic is that it has messages."""
        return (topic not in self.table or topic in self._derived) and not self.is_system(topic)

    def derive(self, topic: str, queue_id: int) -> None:
        """A slave has a message of a topic that its master has not announced yet: serve it with the queues
        that are known, until the master's table comes. If the master is lost before that, nothing else is."""
        known = self.table.get(topic)
        if known is not None and queue_id < known.read_queue_nums:
            return
        self._derived.add(topic)
        queue_nums = queue_id + 1
        self.table[topic] = TopicConfig(
            topic_name=topic, read_queue_nums=queue_nums, write_queue_nums=queue_nums, perm=_READ_WRITE
        )
        self.is_dirty = True
        self._notify(None)

    # -- names -----------------------------------------------------------------------------------

    @property
    def system_topics(self) -> frozenset[str]:
        """Every name that is the system's: RocketMQ's, and those made for this cluster and broker."""
        return SYSTEM_TOPICS | self._made_at_start

    def is_system(self, topic: str) -> bool:
        """Whether users may neither make nor delete `topic`."""
        return is_system_topic(topic) or topic in self._made_at_start

    def is_order(self, topic: str) -> bool:
        """Whether `topic` is there and ordered."""
        config = self.table.get(topic)
        return config is not None and config.order

    def read_queues(self, topic: str) -> int:
        """How many queues of a topic may be read; 0 where there is no such topic."""
        config = self.table.get(topic)
        return 0 if config is None else config.read_queue_nums

    def has_priorities(self, topic: str) -> bool:
        """Whether the queues of `topic` stand for priorities."""
        config = self.table.get(topic)
        return config is not None and has_priorities(config.attributes)

    def check_topic_name(self, topic: str) -> None:
        """RequestError INVALID_PARAMETER if `topic` is no topic name."""
        check_topic_name(topic)

    # -- made on demand --------------------------------------------------------------------------

    def create_in_send(
        self, topic: str, default_topic: str, remote_address: str, client_queue_nums: int, sys_flag: int
    ) -> TopicConfig | None:
        """The topic of a send, made like `default_topic` if it is not there; None: it may not be."""
        known = self.table.get(topic)
        if known is not None:
            return known
        default = self._inheritable(default_topic)
        if default is None:
            _log.warning(
                "topic %s of %s is not created: %s is not a topic to inherit from here",
                topic,
                remote_address,
                default_topic,
            )
            return None
        queue_nums = max(0, min(client_queue_nums, default.write_queue_nums))
        created = TopicConfig(
            topic_name=topic,
            read_queue_nums=queue_nums,
            write_queue_nums=queue_nums,
            perm=default.perm & ~_INHERIT,
            topic_filter_type=default.topic_filter_type,
            topic_sys_flag=sys_flag,
        )
        _log.info("topic created from %s for %s: %s", default_topic, remote_address, describe_fields(created))
        return self._put(created)

    def _inheritable(self, default_topic: str) -> TopicConfig | None:
        config = self._config()
        default = self.table.get(default_topic)
        if default_topic == AUTO_CREATE_TOPIC_KEY_TOPIC:
            if not config.auto_create_topic_enable:
                return None
            if default is None:  # the key was off when the broker started
                default = self._put(default_topic_config(config))
        return default if default is not None and default.perm & _INHERIT else None

    def create_in_send_back(
        self, topic: str, queue_nums: int, perm: int, sys_flag: int = 0, is_order: bool | None = None
    ) -> TopicConfig:
        """A topic that the broker needs itself (%RETRY%, %DLQ% and the like), made if it is not there.

        `is_order` None leaves an existing topic as it is. RequestError INVALID_PARAMETER: it would have
        more queues than any may have, such as those that a group asks for its retries.
        """
        known = self.table.get(topic)
        if known is None:
            check_queue_nums(topic, queue_nums)
            created = TopicConfig(
                topic_name=topic,
                read_queue_nums=queue_nums,
                write_queue_nums=queue_nums,
                perm=perm,
                topic_sys_flag=sys_flag,
                order=bool(is_order),
            )
            _log.info("topic created: %s", describe_fields(created))
            return self._put(created)
        if is_order is not None and is_order != known.order:
            return self._put(_with(known, order=is_order))
        return known

    def separate_retries(self, retry_topic: str, topics: Iterable[str]) -> TopicConfig:
        """Give a retry topic that exists as many queues as each of `topics`, if it has fewer: their messages
        keep their queues when they fail."""
        queue_nums = [config.write_queue_nums for topic in topics if (config := self.table.get(topic))]
        known, most = self.table[retry_topic], max(queue_nums, default=0)
        if most <= min(known.read_queue_nums, known.write_queue_nums):
            return known
        grown = _with(
            known,
            read_queue_nums=max(known.read_queue_nums, most),
            write_queue_nums=max(known.write_queue_nums, most),
        )
        _log.info("topic %s changed: %s", retry_topic, describe_change(known, grown))
        return self._put(grown)

    # -- changed by administrators ---------------------------------------------------------------

    def update(self, config: TopicConfig, attributes: str | None = None) -> None:
        """Make a topic or change it. `attributes` are changes, `+key=value,-key`; if None,
        `config.attributes` are, by signed key. RequestError: they are refused, nothing is changed."""
        self.update_all((config,), attributes)

    def update_all(self, configs: Iterable[TopicConfig], attributes: str | None = None) -> None:
        """The same for several topics: all of them are changed, or none."""
        for new in [self._changed(config, attributes) for config in configs]:
            self._update(new)

    def _changed(self, config: TopicConfig, attributes: str | None) -> TopicConfig:
        """A topic with its attributes after a change; RequestError."""
        topic, old = config.topic_name, self.table.get(config.topic_name)
        changes = config.attributes if attributes is None else parse_changes(attributes)
        result = apply_changes(None if old is None else old.attributes, changes, TOPIC_ATTRIBUTES)
        check_topic_attributes(topic, result)
        return _with(config, attributes=result)

    def _update(self, new: TopicConfig) -> None:
        old = self.table.get(new.topic_name)
        if new == old:
            return
        if old is None:
            _log.info("topic created: %s", describe_fields(new))
        else:
            _log.info("topic %s changed: %s", new.topic_name, describe_change(old, new))
        self._put(new)

    def delete(self, topic: str) -> bool:
        """Forget a topic; False when it is not there."""
        old = self.table.pop(topic, None)
        if old is None:
            return False
        _log.info("topic deleted: %s", describe_fields(old))
        self._next_version()
        self._notify(None)
        for forget in self.on_delete:
            forget(topic)
        return True

    def update_order_config(self, table: Mapping[str, str]) -> None:
        """Mark the topics that a name server has an order configuration for; as in 5.x, the others stay.

        Nothing is registered: routes do not show it, and this comes from a registration.
        """
        changed = [self.table[topic] for topic in table if topic in self.table and not self.is_order(topic)]
        for config in changed:
            _log.info("topic %s is an order topic from now on", config.topic_name)
            self.table[config.topic_name] = _with(config, order=True)
        if changed:
            self._next_version()

    def _notify(self, config: TopicConfig | None) -> None:
        self._on_change(config)
        for watcher in self.watchers:
            watcher(config)

    def _put(self, config: TopicConfig) -> TopicConfig:
        self.table[config.topic_name] = config
        self._next_version()
        self._notify(config)
        return config


def check_queue_nums(topic: str, queue_nums: int) -> None:
    """RequestError INVALID_PARAMETER if no topic may have so many queues."""
    if not 0 <= queue_nums <= MAX_QUEUE_NUMS:
        raise RequestError(
            ResponseCode.INVALID_PARAMETER,
            f"The topic[{topic}] cannot have {queue_nums} queues: 0 to {MAX_QUEUE_NUMS} are allowed.",
        )


def _with(config: TopicConfig, **changes: object) -> TopicConfig:
    return msgspec.structs.replace(config, **changes)
