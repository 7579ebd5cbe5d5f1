"""Kourou: RocketMQ in Python.

Names here are loaded on first use, so that `import kourou` stays light.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kourou.errors import KourouError
    from kourou.namesrv.server import NameServer
    from kourou.protocol.message import Message, MessageExt

__version__ = "0.1.0"
__all__ = ["KourouError", "Message", "MessageExt", "NameServer", "__version__"]

_HOMES = {
    "KourouError": "kourou.errors",
    "Message": "kourou.protocol.message",
    "MessageExt": "kourou.protocol.message",
    "NameServer": "kourou.namesrv.server",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'kourou' has no attribute '{name}'; it offers {', '.join(__all__)}")
    value: object = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
