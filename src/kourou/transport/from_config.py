"""Transport settings from a component's configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from kourou.config.remoting import OutgoingTlsSettings, RemotingSettings
from kourou.transport.certificate_user import CertificateUser
from kourou.transport.settings import (
    ClientAuth,
    ClientTlsConfig,
    ConnectionLimits,
    RemotingClientConfig,
    RemotingServerConfig,
    ServerTlsConfig,
    TlsMode,
)

if TYPE_CHECKING:
    from kourou.transport.http_server import HttpHandler, HttpListeners


async def start_http(
    config: RemotingSettings,
    routes: Callable[[], Mapping[str, HttpHandler]],
    *,
    metrics_port: int | None = None,
    metrics_host: str = "",
) -> HttpListeners | None:
    """The running HTTP listeners; None if no port is configured. ConfigError if one cannot listen.

    `routes` is called if there is one: HTTP is rarely used, and a start should be fast.
    """
    if config.http_port is None and metrics_port is None:
        return None
    from kourou.transport.http_server import HttpListeners, HttpServer

    table = routes()
    host_key = "httpBindAddress" if config.http_bind_address else "bindAddress"
    host = config.http_bind_address or config.bind_address
    http = metrics = None
    if config.http_port is not None:
        http = HttpServer(host, config.http_port, table, host_key=host_key)
    if metrics_port is not None and not (metrics_port and metrics_port == config.http_port):
        metrics = HttpServer(
            metrics_host or host,
            metrics_port,
            table,
            port_key="metricsPromExporterPort" if config.metrics_port is None else "metricsPort",
            host_key="metricsPromExporterHost" if metrics_host else host_key,
        )
    listeners = HttpListeners(http, metrics)
    await listeners.start()
    return listeners


def server_settings(config: RemotingSettings) -> RemotingServerConfig:
    """The listening address, and the limits of a connection."""
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
            certificate_user=CertificateUser(config.tls_server_client_certificate_user),
            test_mode=config.tls_test_mode_enable,
        ),
    )


def client_settings(config: RemotingSettings, connect_timeout_ms: int = 3_000) -> RemotingClientConfig:
    """Settings for outgoing connections, from the configuration."""
    return RemotingClientConfig(
        connect_timeout_ms=connect_timeout_ms,
        limits=_limits(config),
        tls=outgoing_tls(config),
    )


def outgoing_tls(config: OutgoingTlsSettings) -> ClientTlsConfig:
    """TLS of outgoing connections."""
    return ClientTlsConfig(
        enable=config.tls_enable,
        cert_path=_path(config.tls_client_cert_path),
        key_path=_path(config.tls_client_key_path),
        key_password=config.tls_client_key_password,
        trust_cert_path=_path(config.tls_client_trust_cert_path),
        auth_server=config.tls_client_auth_server,
    )


def ha_server_tls(config: RemotingSettings) -> ServerTlsConfig:
    """TLS of the port for slaves: that of the first port, with a mode of its own if there is one."""
    tls = server_settings(config).tls
    if config.tls_server_mode_ha is None:
        return tls
    return replace(tls, mode=TlsMode(config.tls_server_mode_ha), mode_key="tls.server.mode.ha")


def ha_client_tls(config: RemotingSettings) -> ClientTlsConfig:
    """TLS of a slave's link to its master: that of requests, with a switch of its own if there is one."""
    tls = client_settings(config).tls
    return tls if config.tls_enable_ha is None else replace(tls, enable=config.tls_enable_ha)


def _limits(config: RemotingSettings) -> ConnectionLimits:
    return ConnectionLimits(
        max_frame_bytes=config.frame_max_length,
        idle_timeout_ms=config.server_channel_max_idle_time_seconds * 1000,
    )


def _path(text: str | None) -> Path | None:
    return Path(text) if text else None
