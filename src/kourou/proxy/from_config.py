"""From the configuration of a proxy to its settings, and to its health checks and metrics by HTTP."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kourou.access.from_config import audit_log_of, lockout_of
from kourou.access.inner_keys import inner_keys
from kourou.clock import wall_ms
from kourou.config.proxy import ProxyConfig
from kourou.proxy.clients.client_settings import ClientPolicy
from kourou.proxy.http2.settings import GrpcServerConfig
from kourou.proxy.messages.limits import MessageLimits
from kourou.proxy.settings import DEFAULT_PORT, AccessSettings, ProxySettings
from kourou.transport.certificate_user import CertificateUser
from kourou.transport.from_config import outgoing_tls
from kourou.transport.settings import ServerTlsConfig, TlsMode

if TYPE_CHECKING:
    from kourou.proxy.assembly import Proxy
    from kourou.transport.http_server import HttpServer

TLS_KEYS: Final = {
    "tls.server.certPath": "tlsCertPath",
    "tls.server.keyPath": "tlsKeyPath",
    "tls.server.keyPassword": "tlsKeyPassword",
    "tls.test.mode.enable": "tlsTestModeEnable",
}
"""What a proxy's keys of TLS are called in other components, and in messages about them."""


def proxy_settings(
    config: ProxyConfig, namesrv_addr: str | None = None, broker_tls: ServerTlsConfig | None = None
) -> ProxySettings:
    """The settings; `namesrv_addr` counts if the configuration has none, `broker_tls` as `grpc_tls` says."""
    return ProxySettings(
        grpc=GrpcServerConfig(
            host=config.bind_address,
            port=config.grpc_server_port,
            tls=grpc_tls(config, broker_tls),
            max_message_bytes=config.grpc_max_inbound_message_size,
            max_concurrent_calls=config.grpc_max_concurrent_calls_per_connection,
            idle_timeout_ms=config.grpc_client_idle_time_mills,
        ),
        namesrv=config.namesrv_addr or namesrv_addr,
        tls=outgoing_tls(config),
        own_keys=inner_keys(config),
        follows_users=config.authentication_enabled,
        access=AccessSettings(
            checks_policies=config.authorization_enabled,
            lockout=lockout_of(config),
            audit_log=audit_log_of(config, Path(config.rocketmq_home or "."), _audit_name(config), wall_ms),
        ),
        clients=ClientPolicy(
            producer_max_attempts=config.grpc_client_producer_max_attempts,
            producer_backoff_initial_ms=config.grpc_client_producer_backoff_initial_millis,
            producer_backoff_max_ms=config.grpc_client_producer_backoff_max_millis,
            producer_backoff_multiplier=config.grpc_client_producer_backoff_multiplier,
            max_body_bytes=config.max_message_size if config.max_message_size > 0 else _NO_LIMIT_BYTES,
            validates_message_type=config.enable_topic_message_type_check,
            receive_batch_size=config.grpc_client_consumer_long_polling_batch_size,
            min_polling_ms=config.grpc_client_consumer_min_long_polling_timeout_millis,
            max_polling_ms=config.grpc_client_consumer_max_long_polling_timeout_millis,
        ),
        client_expiry_s=config.channel_expired_timeout / 1000,
        messages=MessageLimits(
            max_body_bytes=max(0, config.max_message_size),
            refuses_empty_bodies=config.enable_message_body_empty_check,
            max_user_properties=max(0, config.user_property_max_num),
            max_user_property_bytes=max(0, config.max_user_property_size),
            max_message_group_bytes=max(0, config.max_message_group_size),
            max_delay_ms=max(0, config.max_delay_time_mills),
            max_recovery_s=max(0, config.max_transaction_recovery_second),
            checks_types=config.enable_topic_message_type_check,
        ),
        has_metrics=config.http_port is not None,
    )


def _audit_name(config: ProxyConfig) -> str:
    # Several proxies of one machine may share a home folder.
    port = config.grpc_server_port
    return "audit_proxy.log" if port == DEFAULT_PORT else f"audit_proxy_{port}.log"


# Clients refuse every message where they are told 0.
_NO_LIMIT_BYTES: Final = 0x7FFF_FFFF


def grpc_tls(config: ProxyConfig, broker_tls: ServerTlsConfig | None = None) -> ServerTlsConfig:
    """TLS of the gRPC port. What the configuration leaves open is as at the broker of the same process, whose
    settings are `broker_tls`: its mode, its certificate, and whether clients need one."""
    # gRPC calls are signed; a certificate names no user.
    tls = replace(broker_tls or ServerTlsConfig(), certificate_user=CertificateUser.NONE)
    if config.tls_server_mode is not None:
        tls = replace(tls, mode=TlsMode(config.tls_server_mode))
    if config.tls_cert_path is not None:
        return replace(
            tls,
            cert_path=Path(config.tls_cert_path),
            key_path=None if config.tls_key_path is None else Path(config.tls_key_path),
            key_password=config.tls_key_password,
        )
    return tls if tls.cert_path is not None else replace(tls, test_mode=config.tls_test_mode_enable)


async def start_proxy_http(config: ProxyConfig, proxy: Proxy) -> HttpServer | None:
    """The started listener of a proxy; None if no port is configured. ConfigError: it cannot listen."""
    if config.http_port is None:
        return None
    from kourou.transport.http_probe import probe_routes
    from kourou.transport.http_server import HttpServer
    from kourou.transport.metrics_http import METRICS, metrics_handler

    routes = {**probe_routes(proxy.why_not_ready), METRICS: metrics_handler(proxy.metric_families)}
    host_key = "httpBindAddress" if config.http_bind_address else "bindAddress"
    server = HttpServer(
        config.http_bind_address or config.bind_address, config.http_port, routes, host_key=host_key
    )
    await server.start()
    return server
