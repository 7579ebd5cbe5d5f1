"""From a component's configuration to what its server and its client are told."""

from __future__ import annotations

from pathlib import Path

from kourou.config.remoting import RemotingSettings
from kourou.transport.settings import (
    ClientAuth,
    ClientTlsConfig,
    ConnectionLimits,
    RemotingClientConfig,
    RemotingServerConfig,
    ServerTlsConfig,
    TlsMode,
)


def server_settings(config: RemotingSettings) -> RemotingServerConfig:
    """Where to listen, and what a connection may do."""
    return RemotingServerConfig(
        host=config.bind_address,
        port=config.listen_port,
        backlog=config.server_socket_backlog,
        limits=_limits(config),
        tls=ServerTlsConfig(
            mode=TlsMode(config.tls_server_mode),
            cert_path=_path(config.tls_server_cert_path),
            key_path=_path(config.tls_server_key_path),
            key_password=config.tls_server_key_password,
            trust_cert_path=_path(config.tls_server_trust_cert_path),
            client_auth=ClientAuth(config.tls_server_need_client_auth),
            test_mode=config.tls_test_mode_enable,
        ),
    )


def client_settings(config: RemotingSettings, connect_timeout_ms: int = 3_000) -> RemotingClientConfig:
    """How to reach others."""
    return RemotingClientConfig(
        connect_timeout_ms=connect_timeout_ms,
        limits=_limits(config),
        tls=ClientTlsConfig(
            enable=config.tls_enable,
            cert_path=_path(config.tls_client_cert_path),
            key_path=_path(config.tls_client_key_path),
            key_password=config.tls_client_key_password,
            trust_cert_path=_path(config.tls_client_trust_cert_path),
            auth_server=config.tls_client_auth_server,
        ),
    )


def _limits(config: RemotingSettings) -> ConnectionLimits:
    return ConnectionLimits(
        max_frame_bytes=config.frame_max_length,
        idle_timeout_ms=config.server_channel_max_idle_time_seconds * 1000,
    )


def _path(text: str | None) -> Path | None:
    return Path(text) if text else None
