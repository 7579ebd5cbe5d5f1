"""Why a connection could not be made, in words."""

from __future__ import annotations

import socket
import ssl

from kourou.errors import ConnectError, TlsError
from kourou.transport.tls import describe_handshake


def connect_problem(address: str, error: Exception, *, is_tls: bool) -> ConnectError | TlsError:
    """The error for the caller; nothing was sent."""
    if isinstance(error, ssl.SSLError) or (is_tls and isinstance(error, ConnectionResetError | EOFError)):
        return TlsError(address, describe_handshake(error))
    if isinstance(error, socket.gaierror):
        return ConnectError(address, f"the name cannot be resolved ({error.strerror})")
    if isinstance(error, ConnectionRefusedError):
        return ConnectError(address, "connection refused; is the server running there?")
    return ConnectError(address, str(error) or type(error).__name__)
