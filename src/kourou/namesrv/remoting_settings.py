"""From the name server's configuration to what the transport is told."""

from __future__ import annotations

from pathlib import Path

from kourou.config import NamesrvConfig
from kourou.transport.settings import (
    ClientAuth,
    ClientTlsConfig,
    ConnectionLimits,
    RemotingClientConfig,
    RemotingServerConfig,
    ServerTlsConfig,
    TlsMode,
)


def server_settings(config: NamesrvConfig) -> RemotingServerConfig:
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


def client_settings(config: NamesrvConfig) -> RemotingClientConfig:
    """How to reach brokers, to tell them that their lowest id has changed."""
    return RemotingClientConfig(
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


def _limits(config: NamesrvConfig) -> ConnectionLimits:
    return ConnectionLimits(
        max_frame_bytes=config.frame_max_length,
        idle_timeout_ms=config.server_channel_max_idle_time_seconds * 1000,
    )


def _path(text: str | None) -> Path | None:
    return Path(text) if text else None
