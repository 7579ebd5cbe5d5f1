"""gRPC of a standalone: a proxy in the process of the name server, in front of all brokers.

A broker of the same process is reached in memory, the processes of several ones by TCP.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Final

from kourou.config.option_names import naming_options
from kourou.errors import ConfigError
from kourou.standalone.options import StandaloneOptions

if TYPE_CHECKING:
    from kourou.access.audit_log import AuditLog
    from kourou.broker.controller import BrokerController
    from kourou.config import BrokerConfig
    from kourou.proxy.assembly import Proxy
    from kourou.proxy.settings import ProxySettings
    from kourou.transport.settings import ServerTlsConfig

GRPC_OPTIONS: Final = {"grpcServerPort": "--grpc-port", "bindAddress": "--host"}
"""Key to option, of the gRPC port."""
_MISSING: Final = "--grpc-port needs the extra `grpc`: pip install 'kourou[grpc]'"


def check_grpc() -> None:
    """ConfigError: the packages that a proxy needs are not installed."""
    try:
        import_module("google.protobuf")
    except ImportError as error:
        raise ConfigError(_MISSING) from error


def proxy_settings(
    options: StandaloneOptions, namesrv_addr: str, broker_configs: Sequence[BrokerConfig], *, has_broker: bool
) -> ProxySettings:
    """What the proxy is started with: TLS and lock-outs are those of the brokers. `has_broker`: there is a
    broker in its process, which checks calls."""
    from kourou.access.from_config import lockout_of
    from kourou.proxy.http2.settings import GrpcServerConfig
    from kourou.proxy.settings import AccessSettings, ProxySettings
    from kourou.transport.from_config import outgoing_tls

    first = broker_configs[0]
    return ProxySettings(
        grpc=GrpcServerConfig(host=options.host, port=options.grpc_port or 0, tls=_tls_of(broker_configs)),
        namesrv=namesrv_addr,
        tls=outgoing_tls(first),
        own_keys=None if options.accounts is None else options.accounts.inner,
        follows_users=options.accounts is not None and not has_broker,
        access=AccessSettings(
            lockout=lockout_of(first), audit_log=None if has_broker else _audit_log_of(options, first)
        ),
        has_metrics=options.is_measured,
    )


async def start_grpc(
    options: StandaloneOptions,
    namesrv_addr: str,
    broker_configs: Sequence[BrokerConfig],
    broker: BrokerController | None,
) -> Proxy | None:
    """The started proxy; None if no port is requested. `broker` is the one of this process. ConfigError names
    the option."""
    if options.grpc_port is None:
        return None
    check_grpc()
    from kourou.proxy.assembly import Proxy

    settings = proxy_settings(options, namesrv_addr, broker_configs, has_broker=broker is not None)
    proxy = Proxy(settings, broker=broker)
    with naming_options(GRPC_OPTIONS, GRPC_OPTIONS):
        await proxy.start()
    return proxy


def _audit_log_of(options: StandaloneOptions, broker: BrokerConfig) -> AuditLog | None:
    """A file of its own: a path among the keys of a broker is that of the broker's."""
    from kourou.access.from_config import audit_log_of
    from kourou.clock import wall_ms
    from kourou.config.proxy import ProxyConfig

    config = ProxyConfig(access_audit_log_enable=broker.access_audit_log_enable)
    return audit_log_of(config, options.store, "audit_proxy.log", wall_ms)


def _tls_of(configs: Sequence[BrokerConfig]) -> ServerTlsConfig:
    """That of the first broker that requires TLS, else of the first."""
    from kourou.config.proxy import ProxyConfig
    from kourou.proxy.from_config import grpc_tls
    from kourou.transport.from_config import server_settings
    from kourou.transport.settings import TlsMode

    found = [server_settings(config).tls for config in configs]
    strict = [tls for tls in found if tls.mode is TlsMode.ENFORCING]
    return grpc_tls(ProxyConfig(), (strict or found)[0])
