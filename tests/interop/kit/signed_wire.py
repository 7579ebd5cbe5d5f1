"""SignedConnection: one connection to a server, whose requests are signed with the keys of an account.

It signs by itself (protocol/signature.py), so that a test can send what no client of RocketMQ would.
Not here: accounts (access_accounts.py), what is asked (access_calls.py).
"""

from __future__ import annotations

import itertools
import socket
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Final, Self

from kourou.protocol.command import RemotingCommand, decode_command
from kourou.protocol.frame import FrameDecoder
from kourou.protocol.signature import ACCESS_KEY, SIGNATURE, signature_of
from tests.interop.kit.access_accounts import Identity

_CONNECT_TIMEOUT_S: Final = 10


class SignedConnection:
    """A connection of an identity; `call` sends one request and waits for its answer."""

    def __init__(self, address: str, identity: Identity, *, source: str = "") -> None:
        host, _, port = address.rpartition(":")
        local = (source, 0) if source else None
        self._identity = identity
        self._socket = socket.create_connection(
            (host, int(port)), timeout=_CONNECT_TIMEOUT_S, source_address=local
        )
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._decoder = FrameDecoder()
        self._opaques = itertools.count(1)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def call(
        self, code: int, fields: Mapping[str, str] | None = None, body: bytes = b"", *, timeout_s: float = 10
    ) -> RemotingCommand | None:
        """Send one signed request; its answer, or None where none came in time."""
        return self.send(self.request(code, fields, body), timeout_s=timeout_s)

    def request(
        self, code: int, fields: Mapping[str, str] | None = None, body: bytes = b""
    ) -> RemotingCommand:
        """A request with the signature of this connection's identity."""
        command = RemotingCommand.request(code, None, body)
        command.opaque = next(self._opaques)
        command.ext_fields = signed(fields or {}, body, self._identity)
        return command

    def send(self, command: RemotingCommand, *, timeout_s: float = 10) -> RemotingCommand | None:
        """Send a request as it is; its answer, or None where none came in time."""
        self._socket.sendall(command.encode())
        deadline = time.monotonic() + timeout_s
        while (remaining_s := deadline - time.monotonic()) > 0:
            self._socket.settimeout(remaining_s)
            try:
                data = self._socket.recv(65_536)
            except TimeoutError:
                return None
            if not data:
                raise ConnectionResetError("closed without an answer")
            for answer in map(decode_command, self._decoder.feed(data)):
                if answer.is_response and answer.opaque == command.opaque:
                    return answer
        return None


def signed(fields: Mapping[str, str], body: bytes, identity: Identity) -> dict[str, str]:
    """The fields of a request with key and signature of an identity."""
    if not identity.access_key:
        return dict(fields)
    with_key = {**fields, ACCESS_KEY: identity.access_key}
    return {**with_key, SIGNATURE: signature_of(with_key, body, identity.secret_key)}
