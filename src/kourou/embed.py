"""Name server and broker for programs that bring their own: start, stop, and hooks.

    async with NameServer(NamesrvConfig(listen_port=0)) as namesrv:
        config = BrokerConfig(listen_port=0, namesrv_addr=namesrv.address, store_path_root_dir="store")
        hooks = BrokerHooks(before_send=[look_at])
        async with Broker(config, hooks=hooks) as broker:
            ...

`standalone` and the test kit are made of these. `Proxy` serves gRPC clients, with the extra `grpc`:

    async with Proxy(ProxySettings(namesrv=namesrv.address), broker=broker) as proxy:
        ...
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kourou.broker.admission import MessageCheck, RequestCheck
from kourou.broker.controller import BrokerController as Broker
from kourou.broker.hooks import BrokerHooks, GivenUpTransaction, PullContext, SendContext, TransactionEnd
from kourou.config import BrokerConfig, NamesrvConfig
from kourou.lazy_exports import lazy_exports
from kourou.namesrv.server import NameServer
from kourou.protocol.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    from kourou.proxy.assembly import Proxy
    from kourou.proxy.http2.settings import GrpcServerConfig
    from kourou.proxy.settings import ProxySettings
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "kourou.proxy.assembly": ("Proxy",),
            "kourou.proxy.http2.settings": ("GrpcServerConfig",),
            "kourou.proxy.settings": ("ProxySettings",),
        },
        install="a proxy needs the extra `grpc`: pip install 'kourou[grpc]'",
    )

__all__ = [
    "Broker",
    "BrokerConfig",
    "BrokerHooks",
    "GivenUpTransaction",
    "GrpcServerConfig",
    "MessageCheck",
    "NameServer",
    "NamesrvConfig",
    "Proxy",
    "ProxySettings",
    "PullContext",
    "RequestCheck",
    "RequestCode",
    "ResponseCode",
    "SendContext",
    "TransactionEnd",
]
