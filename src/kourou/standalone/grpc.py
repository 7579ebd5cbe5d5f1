"""gRPC of a standalone: a proxy in the process of the name server, in front of all brokers.

A broker of the same process is reached in memory, the processes of several ones by TCP.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

from kourou.config.option_names import naming_options
from kourou.errors import ConfigError
from kourou.standalone.options import StandaloneOptions

if TYPE_CHECKING:
    from kourou.broker.controller import BrokerController
    from kourou.proxy.assembly import Proxy
    from kourou.proxy.settings import ProxySettings

GRPC_OPTIONS: Final = {"grpcServerPort": "--grpc-port", "bindAddress": "--host"}
"""Key to option, of the gRPC port."""
_MISSING: Final = "--grpc-port needs the extra `grpc`: pip install 'kourou[grpc]'"


def check_grpc() -> None:
    """ConfigError: the packages that a proxy needs are not installed."""
    try:
        import_module("google.protobuf")
    except ImportError as error:
        raise ConfigError(_MISSING) from error


def proxy_settings(options: StandaloneOptions, namesrv_addr: str, *, has_broker: bool) -> ProxySettings:
    """What the proxy is started with; `has_broker`: there is a broker in its process, which checks calls."""
    from kourou.access.from_config import lockout_of
    from kourou.config.access_settings import LockoutSettings
    from kourou.proxy.http2.settings import GrpcServerConfig
    from kourou.proxy.settings import SELF_MADE_TLS, AccessSettings, ProxySettings

    return ProxySettings(
        grpc=GrpcServerConfig(host=options.host, port=options.grpc_port or 0, tls=SELF_MADE_TLS),
        namesrv=namesrv_addr,
        own_keys=None if options.accounts is None else options.accounts.inner,
        follows_users=options.accounts is not None and not has_broker,
        # As the brokers by default.
        access=AccessSettings(lockout=lockout_of(LockoutSettings())),
        has_metrics=options.is_measured,
    )


async def start_grpc(
    options: StandaloneOptions, namesrv_addr: str, broker: BrokerController | None
) -> Proxy | None:
    """The started proxy; None if no port is requested. ConfigError names the option."""
    if options.grpc_port is None:
        return None
    check_grpc()
    from kourou.proxy.assembly import Proxy

    proxy = Proxy(proxy_settings(options, namesrv_addr, has_broker=broker is not None), broker=broker)
    with naming_options(GRPC_OPTIONS, GRPC_OPTIONS):
        await proxy.start()
    return proxy
