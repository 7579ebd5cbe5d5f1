"""Configuration: RocketMQ's keys and files, read into one frozen dataclass a component.

Open to every layer; imports nothing of ours but `errors` and `lazy_exports`. The environment is read by entry
points only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kourou.config.namesrv import NamesrvConfig
from kourou.config.namesrv_loader import load_namesrv_config
from kourou.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from kourou.config.broker import BrokerConfig
    from kourou.config.broker_loader import load_broker_config
else:
    # A broker has hundreds of keys, which a name server need not load.
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "kourou.config.broker": ("BrokerConfig",),
            "kourou.config.broker_loader": ("load_broker_config",),
        },
    )

__all__ = ["BrokerConfig", "NamesrvConfig", "load_broker_config", "load_namesrv_config"]
