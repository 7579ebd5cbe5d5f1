"""Configuration: RocketMQ's keys and files, read into one frozen dataclass a component.

Open to every layer; imports nothing of ours but `errors`. The environment is read by entry points only.
"""

from __future__ import annotations

from kourou.config.namesrv import NamesrvConfig
from kourou.config.namesrv_loader import load_namesrv_config

__all__ = ["NamesrvConfig", "load_namesrv_config"]
