"""EtcdClient: reads, transactions and leases, at whichever member answers.

A member that is paused or cut off accepts connections and answers nothing: each attempt has `timeout_ms`,
then the next member gets the request. Reads, grants and renewals are repeated there. A write is repeated only
if no member can have got it; else EtcdUnavailableError says that it may have been done, and the caller reads
what holds.

Reads are linearizable. An isolated member could answer from an old state all the same after it was restored:
answers of an older Raft term than one seen before, or of another cluster, are dropped.

Not here: watches (watch.py).
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Self

import msgspec

from kourou.errors import (
    ConfigError,
    ConnectError,
    EtcdRefusedError,
    EtcdUnavailableError,
    RemotingError,
    TlsError,
)
from kourou.etcd.http_connection import HttpConnection
from kourou.etcd.operations import prefix_range
from kourou.etcd.operations import put as put_operation
from kourou.etcd.values import Json, Lease, RangeResult, TxnResult, number, to_text
from kourou.transport.addresses import parse_address

_log = logging.getLogger(__name__)

DEFAULT_TIMEOUT_MS: Final = 1_000
_MAX_IDLE: Final = 2  # connections to a member

# Codes of gRPC. Of another member the same request may succeed. UNKNOWN is in it for "not a primary lessor",
# which a member says that was the leader just now.
_CANCELLED, _UNKNOWN, _DEADLINE_EXCEEDED, _EXHAUSTED, _INTERNAL, _UNAVAILABLE = 1, 2, 4, 8, 13, 14
_NO_CODE: Final = -1  # of what answers no JSON: another server, or a proxy before etcd
TRY_ELSEWHERE: Final = {
    *(_CANCELLED, _UNKNOWN, _DEADLINE_EXCEEDED, _EXHAUSTED, _INTERNAL, _UNAVAILABLE, _NO_CODE),
}
_NOT_FOUND: Final = 5
UNAUTHENTICATED: Final = 16
# Of INVALID_ARGUMENT, by its text: users or roles were changed since the token was given.
_OLD_TOKEN: Final = "revision of auth store is old"


@dataclass(frozen=True, slots=True)
class MemberStatus:
    """What a member says of itself; `error` if it does not answer."""

    address: str
    version: str = ""
    is_leader: bool = False
    has_leader: bool = False
    error: str | None = None


@dataclass(slots=True)
class _Member:
    address: str
    idle: list[HttpConnection] = field(default_factory=list)


class EtcdClient:
    """A client of one cluster. Use it with `async with`, or call `close`."""

    def __init__(
        self,
        endpoints: Sequence[str],
        *,
        tls: ssl.SSLContext | None = None,
        user: str | None = None,
        password: str | None = None,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
    ) -> None:
        if not endpoints:
            raise ConfigError("etcd: no endpoint is given; give host:port of each member")
        if (user is None) != (password is None):
            raise ConfigError("etcd: a user needs a password, and a password a user; give both or none")
        addresses, is_tls = parse_endpoints(endpoints)
        self._members = [_Member(address) for address in addresses]
        self._tls = tls or (ssl.create_default_context() if is_tls else None)
        self._user = user
        self._password = password
        self._timeout_s = timeout_ms / 1000
        self._token: str | None = None
        self._preferred = 0
        self._raft_term = 0
        self._cluster_id: str | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        for member in self._members:
            while member.idle:
                member.idle.pop().close()

    @property
    def endpoints(self) -> list[str]:
        """The members, beginning with the one that is asked first."""
        members = self._members[self._preferred :] + self._members[: self._preferred]
        return [member.address for member in members]

    # -- keys ------------------------------------------------------------------------------------

    async def get(self, key: str) -> RangeResult:
        """The key, if it exists."""
        return RangeResult.of(await self._call("kv/range", {"key": to_text(key)}, is_repeatable=True))

    async def get_prefix(self, prefix: str) -> RangeResult:
        """All keys with a prefix, in their order."""
        return RangeResult.of(await self._call("kv/range", prefix_range(prefix), is_repeatable=True))

    async def put(self, key: str, value: bytes, *, lease: int = 0) -> None:
        """Set the key."""
        fields: Json = put_operation(key, value, lease=lease)["request_put"]
        await self._call("kv/put", fields, is_repeatable=False)

    async def delete(self, key: str) -> bool:
        """Delete the key; whether it was there."""
        answer = await self._call("kv/deleterange", {"key": to_text(key)}, is_repeatable=False)
        return number(answer, "deleted") > 0

    async def txn(
        self, compare: Sequence[Json], success: Sequence[Json], failure: Sequence[Json] = ()
    ) -> TxnResult:
        """Execute `success` if all comparisons hold, else `failure`, in one step (operations.py)."""
        fields = {"compare": list(compare), "success": list(success), "failure": list(failure)}
        is_read = all("request_range" in each for each in [*success, *failure])
        return TxnResult.of(await self._call("kv/txn", fields, is_repeatable=is_read))

    async def compact(self, revision: int) -> None:
        """Drop the history before a revision; watches from an earlier one read all keys again."""
        await self._call("kv/compaction", {"revision": str(revision)}, is_repeatable=True)

    # -- leases ----------------------------------------------------------------------------------

    async def grant(self, ttl_s: int) -> Lease:
        """A new lease. etcd may make it longer: the least is about 1.5 times its election timeout."""
        # A grant whose answer is lost expires by itself.
        answer = await self._call("lease/grant", {"TTL": str(ttl_s)}, is_repeatable=True)
        return Lease(number(answer, "ID"), number(answer, "TTL"))

    async def keep_alive(self, lease_id: int) -> Lease | None:
        """Renew a lease; None: it has expired or was revoked."""
        answer = await self._call("lease/keepalive", {"ID": str(lease_id)}, is_repeatable=True)
        ttl_s = number(answer.get("result", {}), "TTL")
        return Lease(lease_id, ttl_s) if ttl_s else None

    async def revoke(self, lease_id: int) -> None:
        """End a lease: its keys are deleted. One that does not exist is no error."""
        try:
            await self._call("lease/revoke", {"ID": str(lease_id)}, is_repeatable=True)
        except EtcdRefusedError as error:
            if error.code != _NOT_FOUND:
                raise

    # -- members ---------------------------------------------------------------------------------

    async def statuses(self) -> list[MemberStatus]:
        """What each of the endpoints says of itself, all at once."""
        return list(await asyncio.gather(*(self._status(each) for each in self._members)))

    async def _status(self, member: _Member) -> MemberStatus:
        try:
            answer = await self._authorised(member, "maintenance/status", {})
        except (RemotingError, EtcdRefusedError, TimeoutError) as error:
            return MemberStatus(member.address, error=_cause(error, self._timeout_s))
        leader = answer.get("leader", "0")
        return MemberStatus(
            member.address,
            version=answer.get("version", ""),
            is_leader=leader == answer.get("header", {}).get("member_id"),
            has_leader=leader != "0",
        )

    # -- requests --------------------------------------------------------------------------------

    async def _call(self, path: str, fields: Json, *, is_repeatable: bool) -> Json:
        """The answer of the first member that gives one."""
        causes = []
        for index in self._order():
            member = self._members[index]
            is_sent = True
            try:
                answer = await self._authorised(member, path, fields)
                problem = self._problem_of(answer)
            except (RemotingError, TimeoutError) as error:
                problem = _cause(error, self._timeout_s)
                is_sent = not isinstance(error, ConnectError | TlsError)
            except EtcdRefusedError as error:
                if error.code not in TRY_ELSEWHERE:
                    raise
                problem = error.reason
            if problem is None:
                self._preferred = index
                return answer
            causes.append(f"{member.address}: {problem}")
            if is_sent and not is_repeatable:
                raise EtcdUnavailableError(causes, may_be_done=True)
        raise EtcdUnavailableError(causes, may_be_done=False)

    def _order(self) -> list[int]:
        count = len(self._members)
        return [(self._preferred + step) % count for step in range(count)]

    def _problem_of(self, answer: Json) -> str | None:
        """Why an answer must not be used."""
        header = answer.get("header") or answer.get("result", {}).get("header") or {}
        term = number(header, "raft_term")
        if term < self._raft_term:
            return f"its answer is of Raft term {term}, before {self._raft_term}: it is behind the others"
        cluster_id = header.get("cluster_id")
        if self._cluster_id is None:
            self._cluster_id = cluster_id
        elif cluster_id != self._cluster_id:
            return (
                f"it belongs to cluster {cluster_id}, the others to {self._cluster_id}; correct the endpoints"
            )
        self._raft_term = term
        return None

    async def _authorised(self, member: _Member, path: str, fields: Json) -> Json:
        """The answer of one member, with a token if there is a user."""
        if self._user is None:
            return await self._post(member, path, fields)
        if self._token is None:
            await self._authenticate(member)
        try:
            return await self._post(member, path, fields)
        except EtcdRefusedError as error:
            if error.code != UNAUTHENTICATED and _OLD_TOKEN not in error.reason:
                raise
        # Simple tokens expire after five minutes, and are known to the member only that gave them.
        await self._authenticate(member)
        return await self._post(member, path, fields)

    async def _authenticate(self, member: _Member) -> None:
        fields = {"name": self._user, "password": self._password}
        answer = await self._post(member, "auth/authenticate", fields, has_token=False)
        self._token = answer["token"]

    async def _post(self, member: _Member, path: str, fields: Json, *, has_token: bool = True) -> Json:
        connection = await self._connection(member)
        try:
            async with asyncio.timeout(self._timeout_s):
                headers = self._headers() if has_token else {}
                reply = await connection.post(f"/v3/{path}", msgspec.json.encode(fields), headers)
        except BaseException:
            connection.close()
            raise
        if connection.is_usable and len(member.idle) < _MAX_IDLE:
            member.idle.append(connection)
        else:
            connection.close()
        return answer_of(member.address, reply.status, reply.body)

    async def _connection(self, member: _Member) -> HttpConnection:
        while member.idle:
            connection = member.idle.pop()
            if connection.is_usable:
                return connection
            connection.close()
        return await self._connect(member)

    async def _connect(self, member: _Member) -> HttpConnection:
        """A new connection; ConnectError also if it takes too long: nothing was sent."""
        try:
            async with asyncio.timeout(self._timeout_s):
                return await HttpConnection.open(member.address, self._tls)
        except TimeoutError as error:
            raise ConnectError(member.address, _cause(error, self._timeout_s)) from error

    def _headers(self) -> dict[str, str]:
        return {"Authorization": self._token} if self._token else {}

    # -- for watches -----------------------------------------------------------------------------

    @asynccontextmanager
    async def stream(self, path: str, fields: Json) -> AsyncIterator[tuple[str, AsyncIterator[Json]]]:
        """The address of the preferred member, and its answers to a request as they arrive."""
        member = self._members[self._preferred]
        if self._user is not None and self._token is None:
            await self._authenticate(member)
        connection = await self._connect(member)
        try:
            yield member.address, self._answers(connection, path, fields)
        finally:
            connection.close()

    async def _answers(self, connection: HttpConnection, path: str, fields: Json) -> AsyncIterator[Json]:
        body = msgspec.json.encode(fields)
        async for status, line in connection.stream(f"/v3/{path}", body, self._headers()):
            answer = answer_of(connection.address, status, line)
            if problem := self._problem_of(answer):
                raise EtcdUnavailableError([f"{connection.address}: {problem}"], may_be_done=False)
            yield answer["result"]

    def prefer_next(self) -> None:
        """Ask the next member first from now on. A token may be the reason why this one failed."""
        self._preferred = (self._preferred + 1) % len(self._members)
        self._token = None


def parse_endpoints(endpoints: Sequence[str]) -> tuple[list[str], bool]:
    """Addresses, and whether they are spoken to by TLS: `host:port`, or a URL as etcd's own tools take."""
    schemes = {endpoint.partition("://")[0] for endpoint in endpoints if "://" in endpoint}
    if schemes - {"http", "https"} or len(schemes) > 1:
        raise ConfigError(
            f"etcd: endpoints {', '.join(endpoints)}: write host:port, all with https:// or none"
        )
    addresses = [endpoint.rpartition("://")[2].rstrip("/") for endpoint in endpoints]
    for address in addresses:
        parse_address(address)
    return list(dict.fromkeys(addresses)), schemes == {"https"}


def answer_of(address: str, status: int, body: bytes) -> Json:
    """A response's fields; EtcdRefusedError if it is an error."""
    try:
        answer: Any = msgspec.json.decode(body)
    except msgspec.DecodeError:
        answer = None
    if not isinstance(answer, dict):
        text = body[:80].decode(errors="replace").strip()
        hint = (
            "write https:// before the endpoints"
            if "HTTPS server" in text
            else "is this a client port of etcd?"
        )
        raise EtcdRefusedError(address, _NO_CODE, f"HTTP {status}, {text!r}; {hint}")
    failure = answer.get("error", answer if status != 200 else None)
    if failure is None:
        return answer
    # 3.4: {"error": text, "code": …}; 3.5, 3.6: {"code": …, "message": text}; of a stream: {"error": {…}}.
    fields = failure if isinstance(failure, dict) else answer
    reason = str(fields.get("message") or fields.get("error") or f"HTTP {status}")
    raise EtcdRefusedError(address, int(fields.get("code") or fields.get("grpc_code") or _UNKNOWN), reason)


def _cause(error: Exception, timeout_s: float) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {timeout_s:g} s"
    return str(getattr(error, "reason", error))
