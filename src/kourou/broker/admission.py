"""Admission: the one gate of a broker, consulted on every way that a request can take.

    the dispatcher         runs the request checks before any processor (transport/dispatcher.py)
    the fast path          is closed while a check has to see each send (send/fast_send_path.py), unless the
                           compiled kernel decides in its place (send/signed_sends.py)
    fast pulls             are off while a request check has to see pulls (pull/fast_pull_path.py)
    remembered decisions   hold for one `ruling` (send and pull targets, known senders); the compiled kernel
                           compares it too
    parked requests        are checked again when they continue under another ruling (held and cold pulls)

A check says what it has to see: a `RequestCheck` every request of some codes, a `MessageCheck` every message
that is sent to some topics. It rejects by raising RequestError; any other exception rejects too, with
SYSTEM_ERROR. So a check that is registered here is never bypassed, whatever was decided before. A check whose
own rules change calls `invalidate`.

    admission.add(RequestCheck(authenticate))
    admission.add(RequestCheck(check_quota, codes=frozenset({RequestCode.PULL_MESSAGE})))
    admission.add(MessageCheck(validate_schema, topics=frozenset({"orders"})))

The built-in decisions are here as well: role, permissions of broker, topic and group, the time from which
sends are accepted, enough slaves, and room for what waits for the disk. Messages that wait for a sync were
admitted when they were put: they are in the log.
Not here: whether a request is well-formed, and whether its topic may be created (the processors).
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from kourou.errors import RequestError
from kourou.protocol.bodies.subscription import SubscriptionGroupConfig
from kourou.protocol.bodies.topics import TopicConfig
from kourou.protocol.codes import PermName, RequestCode, ResponseCode
from kourou.protocol.headers.pull import PullMessageRequestHeader
from kourou.protocol.names import REPLY_TOPIC_POSTFIX, is_written_by_brokers
from kourou.protocol.pop.revive_records import MAX_CHECK_POINT_MESSAGES
from kourou.protocol.properties import MessageConst, get_property
from kourou.store.log.put_status import PutStatus

if TYPE_CHECKING:
    from kourou.access.model import Account
    from kourou.broker.connection_state import ConnectionState
    from kourou.broker.hooks import SendContext
    from kourou.broker.send.signed_sends import SignedSends
    from kourou.broker.tables.subscription_groups import SubscriptionGroupManager
    from kourou.broker.tables.topics import TopicConfigManager
    from kourou.config.broker import BrokerConfig
    from kourou.protocol.headers.pop import PopMessageRequestHeader
    from kourou.transport.connection import Connection
    from kourou.transport.request import Request

# What may wait for a sync. A disk that is further behind gets no more: sends are rejected with SYSTEM_BUSY.
MAX_WAITING_BYTES: Final = 256 * 1024 * 1024
MAX_WAITING_MESSAGES: Final = 200_000

# A pop that arrives so long after its time was over is not looked at.
_LATE_MS: Final = 500

_READ: Final = PermName.READ.value
_WRITE: Final = PermName.WRITE.value
_FAST_PATH_CODES: Final = frozenset(
    {RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE}
)


@dataclass(frozen=True, slots=True, eq=False)
class RequestCheck:
    """Sees every request of these codes before its processor; None: every request, unknown codes too."""

    check: Callable[[Request], None]
    codes: frozenset[int] | None = None
    fast_sends: SignedSends | None = None
    """The sends that it would accept, as the compiled kernel can tell: it need not see those. None: it has to
    see all sends."""

    def __call__(self, request: Request) -> None:
        """Check the request if it is of these codes."""
        if self.codes is None or request.code in self.codes:
            self.check(request)
            if self.fast_sends is not None and request.code in _FAST_PATH_CODES:
                self.fast_sends.learn(request)

    @property
    def sees_sends(self) -> bool:
        """Whether it sees sends, all or those that are not `fast_sends`."""
        return self.codes is None or not _FAST_PATH_CODES.isdisjoint(self.codes)

    @property
    def sees_pulls(self) -> bool:
        """Whether it sees pulls."""
        return self.codes is None or RequestCode.PULL_MESSAGE in self.codes


@dataclass(frozen=True, slots=True, eq=False)
class MessageCheck:
    """Sees every message that clients send to these topics, a batch as a whole; None: to any topic, which
    closes the fast path for all of them."""

    check: Callable[[SendContext], None]
    topics: frozenset[str] | Callable[[str], bool] | None = None
    """Names, or a function of the name. Its results are cached until `invalidate`."""

    def concerns(self, topic: str) -> bool:
        """Whether it has to see messages of `topic`."""
        if self.topics is None:
            return True
        return self.topics(topic) if callable(self.topics) else topic in self.topics


AdmissionCheck: TypeAlias = RequestCheck | MessageCheck


class Ruling:
    """An identity: decisions that were made under it hold as long as it is the current one."""

    __slots__ = ()


class DiskBacklog(Protocol):
    """What waits for a sync."""

    waiting_bytes: int
    waiting_messages: int


class ForbiddenType(enum.IntEnum):
    """Whose permission is missing: `forbiddenType` of the answer to a pull (5.x), as code 16 alone does not
    say it."""

    BROKER_FORBIDDEN = 1
    GROUP_FORBIDDEN = 2
    TOPIC_FORBIDDEN = 3
    BROADCASTING_DISABLE_FORBIDDEN = 4
    SUBSCRIPTION_FORBIDDEN = 5


class PullForbiddenError(RequestError):
    """A pull that is rejected with NO_PERMISSION."""

    def __init__(self, forbidden_type: ForbiddenType, remark: str) -> None:
        super().__init__(ResponseCode.NO_PERMISSION, remark)
        self.forbidden_type = forbidden_type


class RecordAccess(Protocol):
    """Decides whether the sender of a request may use a message that it names by its place in the log, and
    counts what it gets."""

    def check_read(self, request: Request, topic: str) -> None:
        """RequestError if messages of `topic` may not be read."""
        ...

    def check_publish(self, request: Request, topic: str) -> None:
        """RequestError if messages may not be sent to `topic`."""
        ...

    def check_producer(self, request: Request, identity: str) -> Account | None:
        """RequestError if the sender may not send as the idempotent producer of this identity. The account
        that may, from every address; None: it is exempt here."""
        ...

    def may_publish(self, request: Request, topic: str) -> bool:
        """The same as a question; an answer is no refusal."""
        ...

    def pulled(self, request: Request, messages: int, size_bytes: int) -> None:
        """Messages are about to go to the sender of a request."""
        ...

    def refusal_counts(self) -> list[tuple[str, int]]:
        """Every kind of refusal, with how many requests were refused for it."""
        ...


class Admission:
    """The gate of one broker. `before_send` is the live list of hooks that see each message."""

    def __init__(
        self,
        *,
        config: Callable[[], BrokerConfig],
        address: str,
        now_ms: Callable[[], int],
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        backlog: DiskBacklog,
        before_send: Sequence[Callable[[SendContext], None]] = (),
        checks: Iterable[AdmissionCheck] = (),
    ) -> None:
        self._config = config
        self._address = address
        self._now_ms = now_ms
        self._topics = topics
        self._groups = groups
        self._backlog = backlog
        self._before_send = before_send
        self._message_checks: list[MessageCheck] = []
        self._is_fast_path_closed = False
        # Whether a check has to see each pull. Asked for each read, so an attribute, as is the next one.
        self.sees_pulls = False
        # What the fast path must verify; None: nothing.
        self.signed_sends: SignedSends | None = None
        # A reply is handed over, stored or not.
        self._replica_check = MessageCheck(
            self._check_replicas, lambda topic: not topic.endswith(REPLY_TOPIC_POSTFIX)
        )
        self.replica_problem: str | None = None
        # Live: the dispatcher looks at it for each request.
        self.request_checks: list[RequestCheck] = []
        self.record_access: RecordAccess | None = None
        """None: a request that is admitted may name any message."""
        # Compared for each message, so an attribute.
        self.ruling = Ruling()
        for check in checks:
            self.add(check)

    # -- checks ----------------------------------------------------------------------------------

    def add(self, check: AdmissionCheck) -> None:
        """From now on `check` sees what it declares, on open connections and of parked requests too."""
        if isinstance(check, RequestCheck):
            self.request_checks.append(check)
        else:
            self._message_checks.append(check)
        self._checks_changed()

    def remove(self, check: AdmissionCheck) -> None:
        """Undo one `add`; ValueError if there was none."""
        if isinstance(check, RequestCheck):
            self.request_checks.remove(check)
        else:
            self._message_checks.remove(check)
        self._checks_changed()

    def invalidate(self) -> None:
        """Forget what was decided: the configuration or the rules of a check have changed."""
        self.ruling = Ruling()

    def _checks_changed(self) -> None:
        verifiers = {check.fast_sends for check in self.request_checks if check.sees_sends}
        # The kernel verifies for one of them.
        self._is_fast_path_closed = (
            None in verifiers
            or len(verifiers) > 1
            or any(check.topics is None for check in self._message_checks)
        )
        self.signed_sends = next(iter(verifiers), None)
        self.sees_pulls = any(check.sees_pulls for check in self.request_checks)
        self.invalidate()

    def check_parked(self, request: Request, ruling: Ruling | None) -> None:
        """Check a request again that was admitted under `ruling`, before it continues."""
        if ruling is not self.ruling:
            for check in self.request_checks:
                check(request)

    def check_record_read(self, request: Request, topic: str, *, admitted: str | None = None) -> None:
        """RequestError if a message of `topic`, which was found by its place in the log, may not be read by
        the sender of the request; for the topic `admitted` the request itself was checked."""
        if self.record_access is not None and topic != admitted:
            self.record_access.check_read(request, topic)

    def check_record_publish(self, request: Request, topic: str, *, admitted: str | None = None) -> None:
        """The same for publishing it."""
        if self.record_access is not None and topic != admitted:
            self.record_access.check_publish(request, topic)

    def check_producer(self, request: Request, identity: str) -> None:
        """RequestError if the sender of a request may not send as this idempotent producer."""
        if self.record_access is None:
            return
        account = self.record_access.check_producer(request, identity)
        if account is not None and self.signed_sends is not None:
            self.signed_sends.learn_producer(account, identity)

    def may_publish(self, connection: Connection, topic: str) -> bool:
        """Whether the client that sends heartbeats on a connection may send to `topic`, and see what was sent
        there."""
        if self.record_access is None:
            return True
        state: ConnectionState = connection.state
        return state.heartbeat is not None and self.record_access.may_publish(state.heartbeat, topic)

    def sees_messages_of(self, topic: str) -> bool:
        """Whether a check has to see each message of `topic`: the fast path is closed for it."""
        return any(check.concerns(topic) for check in self._message_checks)

    def check_message(self, context: SendContext) -> None:
        """Run the message checks; RequestError rejects the message."""
        for check in self._message_checks:
            if check.concerns(context.topic):
                check.check(context)

    # -- sends -----------------------------------------------------------------------------------

    @property
    def is_fast_path_open(self) -> bool:
        """Whether sends may be put without a look at each; topics with a check of their own stay closed."""
        if self._is_fast_path_closed or self._before_send:
            return False
        return not self._backlog.waiting_messages or self.has_room

    @property
    def has_room(self) -> bool:
        """False when so much waits for the disk that more would only pile up."""
        backlog = self._backlog
        return backlog.waiting_bytes <= MAX_WAITING_BYTES and backlog.waiting_messages <= MAX_WAITING_MESSAGES

    def check_room(self) -> None:
        """RequestError when there is no room."""
        if not self.has_room:
            raise RequestError(
                ResponseCode.SYSTEM_BUSY,
                "[REJECTREQUEST]system busy, start flow control for a while "
                f"({self._backlog.waiting_messages} messages of {self._backlog.waiting_bytes} bytes "
                "wait for the disk)",
            )

    def set_replica_problem(self, problem: str | None) -> None:
        """Reject messages that have to wait for slaves, since there are not enough of them; None: accept
        them."""
        had_problem = self.replica_problem is not None
        self.replica_problem = problem
        if problem is not None and not had_problem:
            self.add(self._replica_check)
        elif problem is None and had_problem:
            self.remove(self._replica_check)

    def _check_replicas(self, context: SendContext) -> None:
        if get_property(context.properties, MessageConst.PROPERTY_WAIT_STORE_MSG_OK) != "false":
            status = PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH
            raise RequestError(ResponseCode(status.response_code), f"{status.remark}: {self.replica_problem}")

    @property
    def is_slave(self) -> bool:
        """Whether the broker's role forbids changes by clients."""
        return self._config().is_slave

    @property
    def is_accepting(self) -> bool:
        """Whether the time has come from which sends are accepted."""
        return self._config().start_accept_send_request_time_stamp <= self._now_ms()

    @property
    def is_writable(self) -> bool:
        """Whether `brokerPermission` has W."""
        return bool(self._config().broker_permission & _WRITE)

    def check_accepting(self) -> None:
        """RequestError before the time from which sends are accepted."""
        if not self.is_accepting:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"broker unable to service, until {self._config().start_accept_send_request_time_stamp}",
            )

    def check_writable(self) -> None:
        """RequestError when clients may not send to this broker."""
        if not self.is_writable:
            raise RequestError(
                ResponseCode.NO_PERMISSION, f"the broker[{self._address}] sending message is forbidden"
            )

    def check_topic_name(self, topic: str) -> None:
        """RequestError if only brokers write to `topic`."""
        if is_written_by_brokers(topic):
            raise RequestError(ResponseCode.NO_PERMISSION, f"Sending message to topic[{topic}] is forbidden.")

    def check_send(self, topic_config: TopicConfig) -> None:
        """RequestError if clients may not send to this topic. As in Apache, a broker without W rejects
        ordered topics only: routes keep the other sends away."""
        if topic_config.order:
            self.check_writable()
        self.check_topic_name(topic_config.topic_name)

    def check_send_back(self, topic_config: TopicConfig) -> None:
        """RequestError if consumers may not send back to this retry topic."""
        if not topic_config.perm & _WRITE:
            raise RequestError(
                ResponseCode.NO_PERMISSION,
                f"the topic[{topic_config.topic_name}] sending message is forbidden",
            )

    # -- pulls -----------------------------------------------------------------------------------

    def check_pull(
        self, header: PullMessageRequestHeader, remote_address: str
    ) -> tuple[TopicConfig, SubscriptionGroupConfig]:
        """The topic and the group of a pull; PullForbiddenError or RequestError rejects it."""
        if not self._config().broker_permission & _READ:
            raise PullForbiddenError(
                ForbiddenType.BROKER_FORBIDDEN, f"the broker[{self._address}] pulling message is forbidden"
            )
        group_config = self._check_group(header.consumer_group, header.topic)
        topic_config = self._topics.table.get(header.topic)
        if topic_config is None:
            raise RequestError(
                ResponseCode.TOPIC_NOT_EXIST, f"topic[{header.topic}] not exist, apply first please!"
            )
        if not topic_config.perm & _READ:
            raise PullForbiddenError(
                ForbiddenType.TOPIC_FORBIDDEN, f"the topic[{header.topic}] pulling message is forbidden"
            )
        # The tables of a slave are some seconds old: a queue that they do not have is an empty one.
        is_known = header.queue_id < topic_config.read_queue_nums or self.is_slave
        if header.queue_id < 0 or not is_known:
            raise _illegal_queue(header.queue_id, topic_config, remote_address)
        return topic_config, group_config

    def _check_group(self, group: str, topic: str) -> SubscriptionGroupConfig:
        group_config = self._groups.find(group)
        if group_config is None:
            raise RequestError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group [{group}] does not exist"
            )
        if not group_config.consume_enable:
            raise PullForbiddenError(
                ForbiddenType.GROUP_FORBIDDEN, f"subscription group no permission, {group}"
            )
        # Apache checks this for consumers with a heartbeat only. Here it holds for the whole group.
        if self._groups.forbidden(group, topic) & _READ:
            raise PullForbiddenError(
                ForbiddenType.SUBSCRIPTION_FORBIDDEN,
                f"the consumer group[{group}] is forbidden for topic[{topic}]",
            )
        return group_config

    # -- pops ------------------------------------------------------------------------------------

    def check_pop(self, header: PopMessageRequestHeader, remote_address: str) -> None:
        """RequestError rejects a pop. The first errors of these are those of RocketMQ, in its order."""
        if self._now_ms() - header.born_time - header.poll_time > _LATE_MS:
            raise RequestError(
                ResponseCode.POLLING_TIMEOUT, f"the broker[{self._address}] pop message is timeout too much"
            )
        self._check_readable("pop message")
        if header.max_msg_nums > MAX_CHECK_POINT_MESSAGES:
            raise RequestError(
                ResponseCode.INVALID_PARAMETER,
                f"the broker[{self._address}] pop message's num is greater than {MAX_CHECK_POINT_MESSAGES}",
            )
        config = self._config()
        if not config.timer_wheel_enable:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"the broker[{self._address}] pop message is forbidden because timerWheelEnable is false",
            )
        self.check_popped(header.topic, header.consumer_group, header.queue_id, remote_address)
        if header.max_msg_nums < 1:
            raise RequestError(
                ResponseCode.INVALID_PARAMETER,
                f"maxMsgNums[{header.max_msg_nums}] is illegal; ask for 1 to {MAX_CHECK_POINT_MESSAGES}",
            )
        max_ms = config.timer_max_delay_sec * 1000
        if not 0 <= header.invisible_time <= max_ms:
            raise RequestError(
                ResponseCode.INVALID_PARAMETER,
                f"invisibleTime[{header.invisible_time}] is illegal; it may be 0 to {max_ms} ms "
                "(timerMaxDelaySec)",
            )
        if self.is_slave:
            raise RequestError(
                ResponseCode.SERVICE_NOT_AVAILABLE,
                f"the broker[{self._address}] is a slave, which cannot record what is popped; pop from its "
                "master",
            )

    def check_popped(self, topic: str, group: str, queue_id: int, remote_address: str) -> None:
        """RequestError if a group may not pop from a topic, or not from this queue; a negative one is any."""
        self._check_readable("peeking message")
        topic_config = self._topics.table.get(topic)
        if topic_config is None:
            raise RequestError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist, apply first please!")
        if not topic_config.perm & _READ:
            raise RequestError(ResponseCode.NO_PERMISSION, f"the topic[{topic}] peeking message is forbidden")
        if queue_id >= topic_config.read_queue_nums:
            raise _illegal_queue(queue_id, topic_config, remote_address)
        self._check_group(group, topic)

    def _check_readable(self, what: str) -> None:
        if not self._config().broker_permission & _READ:
            raise RequestError(ResponseCode.NO_PERMISSION, f"the broker[{self._address}] {what} is forbidden")


def _illegal_queue(queue_id: int, topic_config: TopicConfig, remote_address: str) -> RequestError:
    return RequestError(
        ResponseCode.INVALID_PARAMETER,
        f"queueId[{queue_id}] is illegal, topic:[{topic_config.topic_name}] "
        f"topicConfig.readQueueNums:[{topic_config.read_queue_nums}] consumer:[{remote_address}]",
    )
