"""Every error Kourou raises on purpose, in one tree, split by whose fault it is.

    KourouError
    ├── ConfigError                what the operator wrote
    │   └── UnknownKeyError
    ├── MessageRefusedError        what the application wants to send, and no broker accepts
    ├── NameRefusedError           a topic or group of the application's that no broker accepts
    ├── NoBusinessKeyError         a message without a key, whose repetition cannot be detected
    ├── MessageInProgressError     a message that another handler is at work on
    ├── TransactionEndedError      a handler that ended the transaction of its message
    ├── ProtocolError              what the peer sent: bytes that are not a frame, a header, a body
    │   ├── FrameTooLargeError
    │   ├── HeaderFieldError
    │   └── FilterSyntaxError
    ├── RequestError               a request we understood and refuse; carries its response code
    ├── RemotingError              talking to a peer failed
    │   ├── ConnectError
    │   ├── ConnectionLostError
    │   ├── CallTimeoutError
    │   ├── TooManyRequestsError
    │   └── TlsError
    ├── ResponseError              the peer answered with a code other than success
    │   ├── AccessDeniedError
    │   └── LimitError
    │       ├── AccountLimitError
    │       └── TopicLimitError
    ├── EtcdUnavailableError       no member of etcd answers
    ├── EtcdRefusedError           etcd understood a request and refuses it
    ├── ClientError                a client cannot do what it was asked to
    │   ├── ClientStateError
    │   ├── NoNameServerError
    │   │   └── NameServerNotGivenError
    │   ├── NoRouteError
    │   ├── SlaveBehindError
    │   ├── SendFailedError
    │   │   ├── PartlySentError
    │   │   └── SequenceRefusedError
    │   │       ├── ProducerFencedError
    │   │       ├── UnknownProducerError
    │   │       ├── UnknownEpochError
    │   │       ├── SequenceTooOldError
    │   │       └── SequenceJumpError
    │   ├── NoReplyError
    │   ├── LeaseExpiredError
    │   ├── PopNotSupportedError
    │   └── AtomicPublishError
    │       ├── AtomicRolledBackError
    │       ├── AtomicUndecidedError
    │       └── SinkTakenError
    └── StorageError               the disk failed, or what lies on it is not what it should be
        ├── StoreLockedError
        ├── StoreFormatError
        ├── DamageError
        ├── StoreFencedError
        └── DiskFullError

`response_code` is what a server answers when the error ends a request; `retriable` says
whether the same call may go through later. Messages say what, where, and the next step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

SYSTEM_ERROR = 1
SYSTEM_BUSY = 2
SERVICE_NOT_AVAILABLE = 14
SUBSCRIPTION_PARSE_FAILED = 23
INVALID_PARAMETER = 29


class KourouError(Exception):
    """Base of everything Kourou raises on purpose."""

    response_code: int = SYSTEM_ERROR
    retriable: ClassVar[bool] = False


class ConfigError(KourouError):
    """The configuration cannot be used. `problems` holds one line for each thing found."""

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.problems: tuple[str, ...] = problems


class UnknownKeyError(ConfigError):
    """A request would change unknown configuration keys; nothing was changed."""

    response_code = INVALID_PARAMETER


class MessageRefusedError(KourouError, ValueError):
    """A message that no broker would accept; nothing was sent."""


class NameRefusedError(KourouError, ValueError):
    """The name of a topic or group that no broker would accept."""


class NoBusinessKeyError(KourouError):
    """An idempotent handler got a message without the key that identifies it."""

    def __init__(self, topic: str, msg_id: str) -> None:
        super().__init__(
            f"topic {topic!r}, message {msg_id}: it has no keys to identify it by; "
            "send it with keys, or give @idempotent(key=...) a function of your own"
        )
        self.topic = topic
        self.msg_id = msg_id


class MessageInProgressError(KourouError):
    """The same message is being handled elsewhere, or was when a handler died; try it again later."""

    retriable = True

    def __init__(self, key: str) -> None:
        super().__init__(f"{key!r} is being handled elsewhere; it is delivered again later")
        self.key = key


class TransactionEndedError(KourouError):
    """The transaction of an idempotent handler ended before the handler returned."""

    def __init__(self, cause: str) -> None:
        super().__init__(
            f"the handler's transaction ended before the handler returned ({cause}); a handler must not "
            "commit or roll back, nor continue after an error that ends the transaction (use a savepoint), "
            "nor execute DDL on MySQL"
        )
        self.cause = cause


class ProtocolError(KourouError):
    """Bytes from outside that do not follow the protocol."""


class FrameTooLargeError(ProtocolError):
    """A frame announces more bytes than the limit allows."""

    def __init__(self, length: int, limit: int, hint: str = "") -> None:
        super().__init__(f"frame of {length} bytes is over the limit of {limit} bytes{hint}")
        self.length = length
        self.limit = limit


class HeaderFieldError(ProtocolError):
    """A request header lacks a field, or a field has the wrong type."""

    def __init__(self, header: str, reason: str) -> None:
        super().__init__(f"{header}: {reason}")
        self.header = header
        self.reason = reason


class FilterSyntaxError(ProtocolError):
    """An invalid SQL92 expression. `position` counts from 0, `piece` is the text there."""

    response_code = SUBSCRIPTION_PARSE_FAILED

    def __init__(self, problem: str, position: int, piece: str, hint: str = "") -> None:
        near = f", near {piece!r}" if piece and repr(piece) not in problem else ""
        super().__init__(f"SQL92 expression: {problem} at position {position + 1}{near}{hint and '; '}{hint}")
        self.problem = problem
        self.position = position
        self.piece = piece
        self.hint = hint


class RequestError(KourouError):
    """A request that was understood and is refused with a response code."""

    def __init__(self, response_code: int, remark: str, ext_fields: Mapping[str, str] | None = None) -> None:
        super().__init__(remark)
        self.response_code = response_code
        self.remark = remark
        self.ext_fields = ext_fields
        """Header fields of the response."""


class RemotingError(KourouError):
    """Talking to a peer failed. `address` is `host:port` of that peer."""

    retriable = True

    def __init__(self, address: str, message: str) -> None:
        super().__init__(message)
        self.address = address


class ConnectError(RemotingError):
    """No connection could be made."""

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(address, f"cannot connect to {address}: {reason}")
        self.reason = reason


class ConnectionLostError(RemotingError):
    """The connection ended while an answer was awaited, or before the request went out."""

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(address, f"connection to {address} lost: {reason}")
        self.reason = reason


class CallTimeoutError(RemotingError):
    """No answer within the time given to the call."""

    def __init__(self, address: str, code: int, timeout_ms: int) -> None:
        super().__init__(address, f"no answer from {address} to request {code} within {timeout_ms} ms")
        self.code = code
        self.timeout_ms = timeout_ms


class TooManyRequestsError(RemotingError):
    """A bound on work in flight is reached; nothing was sent."""

    response_code = SYSTEM_BUSY

    def __init__(self, address: str, kind: str, limit: int) -> None:
        super().__init__(address, f"{limit} {kind} to {address} are in flight; wait for some to finish")
        self.kind = kind
        self.limit = limit


class TlsError(RemotingError):
    """The TLS handshake failed; the message names the cause."""

    retriable = False

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(address, f"TLS with {address} failed: {reason}")
        self.reason = reason


class EtcdUnavailableError(KourouError):
    """No member of etcd has answered; `causes` has a line for each. `may_be_done`: a write may have been
    executed all the same."""

    retriable = True

    def __init__(self, causes: Sequence[str], *, may_be_done: bool) -> None:
        outcome = "; whether the change was made is not known" if may_be_done else ""
        super().__init__(f"etcd does not answer{outcome}: {'; '.join(causes)}")
        self.causes = tuple(causes)
        self.may_be_done = may_be_done


class EtcdRefusedError(KourouError):
    """etcd has refused a request. `code` is gRPC's."""

    def __init__(self, address: str, code: int, reason: str) -> None:
        super().__init__(f"etcd {address} refuses the request: {reason}")
        self.address = address
        self.code = code
        self.reason = reason


class ResponseError(KourouError):
    """The peer answered with a code other than success."""

    def __init__(self, code: int, remark: str, address: str = "") -> None:
        where = f" (from {address})" if address else ""
        super().__init__(f"CODE: {code}  DESC: {remark}{where}")
        self.code = code
        self.remark = remark
        self.address = address


class AccessDeniedError(ResponseError):
    """Access control of a server refuses the request. `user` is the access key that signed it; empty: it was
    not signed. `wait_ms`: the request was not sent, as the server has rejected this login before, and the
    client sends none until then; None: this is the server's response."""

    def __init__(
        self,
        code: int,
        remark: str,
        address: str = "",
        *,
        user: str = "",
        remedy: str = "",
        wait_ms: int | None = None,
    ) -> None:
        super().__init__(code, remark, address)
        self.user = user
        self.remedy = remedy
        self.wait_ms = wait_ms

    def __str__(self) -> str:
        text = f"{super().__str__()}; {self.remedy}" if self.remedy else super().__str__()
        if self.wait_ms is None:
            return text
        return f"{text}; not sent: the client tries this login again in {self.wait_ms / 1000:.1f} s"


class LimitError(ResponseError):
    """A limit of the server rejects the request. `limit` says which; after `wait_ms` a request may succeed,
    None if the server does not say."""

    retriable = True
    response_code = SYSTEM_BUSY

    def __init__(self, code: int, remark: str, address: str = "", *, limit: str, wait_ms: int | None) -> None:
        super().__init__(code, remark, address)
        self.limit = limit
        self.wait_ms = wait_ms

    @property
    def wait_s(self) -> float | None:
        """`wait_ms` in seconds."""
        return None if self.wait_ms is None else self.wait_ms / 1000


class AccountLimitError(LimitError):
    """The account of the client is over a limit of the server."""

    def __init__(
        self, code: int, remark: str, address: str = "", *, account: str, limit: str, wait_ms: int | None
    ) -> None:
        super().__init__(code, remark, address, limit=limit, wait_ms=wait_ms)
        self.account = account


class TopicLimitError(LimitError):
    """The backlog of the topic has reached its limit at the broker, and its policy is to reject sends."""

    def __init__(
        self, code: int, remark: str, address: str = "", *, topic: str, limit: str, wait_ms: int | None
    ) -> None:
        super().__init__(code, remark, address, limit=limit, wait_ms=wait_ms)
        self.topic = topic


class StorageError(KourouError):
    """The disk failed, or its contents cannot be used. `path` is the file or folder, if it is one."""

    response_code = SERVICE_NOT_AVAILABLE

    def __init__(self, message: str, path: Path | None = None) -> None:
        super().__init__(message)
        self.path = path


class StoreLockedError(StorageError):
    """Another process works on this store. `holder_pid` is None when it could not be found out."""

    def __init__(self, path: Path, holder_pid: int | None = None) -> None:
        holder = "another process" if holder_pid is None else f"process {holder_pid}"
        super().__init__(f"{path}: the store is in use by {holder}; stop it, or use another folder", path)
        self.holder_pid = holder_pid


class StoreFormatError(StorageError):
    """A folder is not a store, or its files do not have the expected sizes."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}", path)
        self.reason = reason


class DamageError(StorageError):
    """Bytes that were on disk and whole once, and are not any more. Nothing of them is deleted."""

    response_code = SYSTEM_ERROR

    def __init__(self, path: Path, position: int, reason: str) -> None:
        super().__init__(
            f"{path}: damaged at byte {position}: {reason}; run `kourou store check` on the store folder",
            path,
        )
        self.position = position
        self.reason = reason


class StoreFencedError(StorageError):
    """The store refuses all writes: one failed, or its files were moved, removed, replaced or cut short.
    `cure`: what has to be done, with or before the restart."""

    def __init__(self, reason: str, cure: str = "check the disk, then restart the broker") -> None:
        super().__init__(f"the store takes no more messages: {reason}; {cure}")
        self.reason = reason


class DiskFullError(StorageError):
    """No room for more messages. Writing resumes by itself when there is room again."""

    retriable = True

    def __init__(self, path: Path, ratio: float) -> None:
        super().__init__(
            f"{path}: the disk is full ({ratio:.0%} in use); messages are refused until there is room", path
        )
        self.ratio = ratio


class ClientError(KourouError):
    """A client operation failed; the message names the failed step."""


class ClientStateError(ClientError):
    """The client is not started, is stopped, or was started before a fork."""


class NoNameServerError(ClientError):
    """No name server is known, or none of those that are known answers."""

    retriable = True


class NameServerNotGivenError(NoNameServerError):
    """Nobody said where a name server is."""

    retriable = False


class NoRouteError(ClientError):
    """No broker is known to have the topic."""

    retriable = True

    def __init__(self, topic: str, reason: str) -> None:
        super().__init__(f"no route to topic {topic!r}: {reason}")
        self.topic = topic
        self.reason = reason


class SlaveBehindError(ClientError):
    """A slave, read while its master is away, does not have a message yet."""

    retriable = True

    def __init__(self, queue: str, queue_offset: int, broker_id: int) -> None:
        super().__init__(
            f"{queue}: slave {broker_id} does not have offset {queue_offset} yet, and its master does not "
            "respond; retry when the master is back"
        )
        self.queue_offset = queue_offset
        self.broker_id = broker_id


class SendFailedError(ClientError):
    """A message was not stored, as far as the client can tell. `attempts` says what was tried, in order;
    after a timeout the broker may have stored it nevertheless."""

    retriable = True

    def __init__(
        self, topic: str, attempts: list[str], timeout_ms: int, *, may_be_stored: bool = False, hint: str = ""
    ) -> None:
        # A reason that repeats is given once: with three attempts at one broker they are often the same.
        counts = Counter(attempts)
        reasons = [f"{reason} ({count} times)" if count > 1 else reason for reason, count in counts.items()]
        tried = "; ".join(reasons) or "no attempt was possible in that time"
        times = "1 attempt" if len(attempts) == 1 else f"{len(attempts)} attempts"
        super().__init__(f"topic {topic!r}: not sent after {times} within {timeout_ms} ms: {tried}{hint}")
        self.topic = topic
        self.attempts = attempts
        self.timeout_ms = timeout_ms
        self.may_be_stored = may_be_stored
        """Whether an attempt was written and not answered: the broker may have stored the message."""
        self.undecided: object | None = None
        """For `send_again`: the send of an idempotent producer, if it may be stored."""


class PartlySentError(SendFailedError):
    """Of many messages sent together some were not stored. `results` has one entry for each message, in
    their order: what the broker answered, or the error; messages with an error may be sent again."""

    def __init__(self, topic: str, results: Sequence[object], timeout_ms: int) -> None:
        failures = [str(result) for result in results if isinstance(result, BaseException)]
        reasons = list(dict.fromkeys(failures))
        super().__init__(topic, reasons, timeout_ms)
        self.args = (f"{len(failures)} of {len(results)} messages were not stored: {'; '.join(reasons)}",)
        self.results = results


class SequenceRefusedError(SendFailedError):
    """A broker refused the sequence of a message of an idempotent producer. This attempt stored nothing;
    `may_be_stored` says whether an earlier one may have."""

    retriable = False

    def __init__(self, topic: str, problem: str, *, may_be_stored: bool = False) -> None:
        super().__init__(topic, [problem], 0, may_be_stored=may_be_stored)
        fate = "; an earlier attempt may have stored the message" if may_be_stored else ""
        self.args = (f"topic {topic!r}: {problem}{fate}",)


class ProducerFencedError(SequenceRefusedError):
    """Another program has opened the same producer name: this producer sends nothing more."""


class UnknownProducerError(SequenceRefusedError):
    """The broker does not know the producer any more: its id has expired, or the broker has lost it."""


class UnknownEpochError(SequenceRefusedError):
    """The broker has not opened the producer with this epoch: it has lost the opening."""


class SequenceTooOldError(SequenceRefusedError):
    """The sequence lies so far back that the broker cannot tell whether the message is stored."""


class SequenceJumpError(SequenceRefusedError):
    """The sequence lies so far ahead that the broker must have lost messages in between."""


class NoReplyError(ClientError):
    """A request was stored, but there was no reply in time."""

    retriable = True

    def __init__(self, topic: str, correlation_id: str, timeout_ms: int) -> None:
        super().__init__(
            f"topic {topic!r}: no reply to request {correlation_id} within {timeout_ms} ms; "
            "is a consumer running that replies?"
        )
        self.topic = topic
        self.correlation_id = correlation_id
        self.timeout_ms = timeout_ms


class LeaseExpiredError(ClientError):
    """The invisible time of a popped message has ended: it is delivered again, to any consumer."""

    def __init__(self, topic: str, msg_id: str, what: str) -> None:
        super().__init__(
            f"topic {topic!r}, message {msg_id}: {what}: its invisible time is over, so it is delivered "
            "again; pop with a longer invisible_ms, or extend it while the message is handled"
        )
        self.topic = topic
        self.msg_id = msg_id


class PopNotSupportedError(ClientError):
    """A broker without POP."""

    def __init__(self, broker_name: str, address: str) -> None:
        super().__init__(
            f"broker {broker_name!r} at {address} has no POP, which needs RocketMQ 5 or Kourou; "
            "PushConsumer and LitePullConsumer work with every broker"
        )
        self.broker_name = broker_name
        self.address = address


class AtomicPublishError(ClientError):
    """An atomic publish is not committed, as far as the client can tell."""


class AtomicRolledBackError(AtomicPublishError):
    """An atomic publish is rolled back: nothing of it is published, and it may be published again."""

    retriable = True

    def __init__(self, atomic_id: str, reason: str, *, is_producer_unknown: bool = False) -> None:
        super().__init__(f"nothing is published: {reason}")
        self.atomic_id = atomic_id
        self.is_producer_unknown = is_producer_unknown
        """Whether the coordinator does not know the producer: its id has expired."""


class AtomicUndecidedError(AtomicPublishError):
    """A broker did not answer in time. A commit that was not answered may take effect: all of the publish
    becomes visible, or nothing."""

    def __init__(self, atomic_id: str, broker_name: str, reason: str) -> None:
        super().__init__(
            f"atomic publish {atomic_id}: broker {broker_name!r} has not answered in time, so it will be "
            f"published as a whole or not at all: {reason}"
        )
        self.atomic_id = atomic_id
        self.broker_name = broker_name
        self.reason = reason


class SinkTakenError(AtomicPublishError):
    """A sink belongs to another query."""
