"""Kourou: RocketMQ in Python.

Names here are loaded on first use, so that `import kourou` stays light.
"""

from __future__ import annotations

__version__ = "0.1.0"
__all__ = ["__version__"]
