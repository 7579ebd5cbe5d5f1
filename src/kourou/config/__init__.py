"""Configuration: RocketMQ's keys and files, read into one frozen dataclass a component.

Open to every layer; imports nothing of ours but `errors`. The environment is read by entry points only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kourou.config.namesrv import NamesrvConfig
from kourou.config.namesrv_loader import load_namesrv_config

if TYPE_CHECKING:
    from kourou.config.broker import BrokerConfig
    from kourou.config.broker_loader import load_broker_config

__all__ = ["BrokerConfig", "NamesrvConfig", "load_broker_config", "load_namesrv_config"]


def __getattr__(name: str) -> object:
    # A broker has hundreds of keys, which a name server need not load.
    if name == "BrokerConfig":
        from kourou.config.broker import BrokerConfig

        return BrokerConfig
    if name == "load_broker_config":
        from kourou.config.broker_loader import load_broker_config

        return load_broker_config
    raise AttributeError(f"module 'kourou.config' has no attribute '{name}'")
