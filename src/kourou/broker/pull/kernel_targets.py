"""KernelTargets: the targets of pulls, as the compiled kernel uses them.

The kernel keeps with each connection what was decided for its pulls, and the guards of the decision. It asks
here for a pull that it does not know, or no longer.
Not here: what is decided, and which guards that has (pull_targets.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kourou.broker.pull.pull_notes import KnownPull
from kourou.protocol.headers.pull import PullMessageRequestHeader

if TYPE_CHECKING:
    from kourou.broker.connection_state import ConnectionState
    from kourou.broker.pull.pull_targets import PullTarget, PullTargets
    from kourou.broker.settings import LiveConfig
    from kourou.store.kernel import KnownPullTarget
    from kourou.transport.connection import Connection

_MAX_KNOWN: Final = 64
"""For so many kinds of pulls of one connection it is kept what was decided; then all are asked for again."""


class KernelTargets:
    """The targets of one broker, for the kernel."""

    def __init__(self, targets: PullTargets, config: LiveConfig) -> None:
        self._targets = targets
        self._config = config

    def find(
        self,
        connection: Connection,
        key: bytes,
        topic: str,
        group: str,
        queue_id: int,
        sys_flag: int,
        subscription: str | None,
        expression_type: str | None,
        sub_version: int,
    ) -> KnownPullTarget | None:
        """What is known of a pull, which is kept for the next ones with this key; None: it has to be decided,
        or it has a filter by properties."""
        header = PullMessageRequestHeader(
            consumer_group=group,
            topic=topic,
            queue_id=queue_id,
            queue_offset=0,
            max_msg_nums=0,
            sys_flag=sys_flag,
            commit_offset=0,
            suspend_timeout_millis=0,
            subscription=subscription,
            sub_version=sub_version,
            expression_type=expression_type,
        )
        target = self._targets.known(connection, header)
        if target is None or target.wants is not None:
            return None
        if target.kernel_fields is None:
            target.kernel_fields = self._fields_of(target, topic, group)
        state: ConnectionState = connection.state
        if len(state.known_pulls) >= _MAX_KNOWN:
            state.known_pulls.clear()
        known = state.known_pulls[key] = target.kernel_fields, target.guards(connection, header)
        return known

    def _fields_of(self, target: PullTarget, topic: str, group: str) -> KnownPull:
        """These hold as long as the target: a change of the configuration is a new ruling."""
        broker_id = slow_broker_id = 0
        if self._config.current.slave_read_enable:
            broker_id = target.group_config.broker_id
            slow_broker_id = target.group_config.which_broker_when_consume_slowly
        topic_config = target.topic_config
        return KnownPull(
            group,
            topic,
            topic_config.read_queue_nums,
            topic_config.topic_sys_flag,
            broker_id,
            slow_broker_id,
            None if target.codes is None else tuple(target.codes),
            bytearray(),
        )
