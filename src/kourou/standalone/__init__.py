"""Standalone: a name server and its brokers as one command, for one machine."""

from __future__ import annotations

from kourou.standalone.options import StandaloneOptions

__all__ = ["StandaloneOptions"]
