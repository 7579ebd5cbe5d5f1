"""Name server and broker for programs that bring their own: start, stop, and hooks.

    async with NameServer(NamesrvConfig(listen_port=0)) as namesrv:
        config = BrokerConfig(listen_port=0, namesrv_addr=namesrv.address, store_path_root_dir="store")
        hooks = BrokerHooks(before_send=[look_at])
        async with Broker(config, hooks=hooks) as broker:
            ...

`standalone` and the test kit are made of these.
"""

from __future__ import annotations

from kourou.broker.admission import MessageCheck, RequestCheck
from kourou.broker.controller import BrokerController as Broker
from kourou.broker.hooks import BrokerHooks, GivenUpTransaction, PullContext, SendContext, TransactionEnd
from kourou.config import BrokerConfig, NamesrvConfig
from kourou.namesrv.server import NameServer
from kourou.protocol.codes import RequestCode, ResponseCode

__all__ = [
    "Broker",
    "BrokerConfig",
    "BrokerHooks",
    "GivenUpTransaction",
    "MessageCheck",
    "NameServer",
    "NamesrvConfig",
    "PullContext",
    "RequestCheck",
    "RequestCode",
    "ResponseCode",
    "SendContext",
    "TransactionEnd",
]
