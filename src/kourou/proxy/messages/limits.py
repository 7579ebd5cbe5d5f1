"""Limits of messages: what a message may be, under the names of Apache's `rmq-proxy.json`, and how long a
client may have it for itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MAX_INVISIBLE_MS: Final = 12 * 3_600_000
"""The longest time for which a client may have a message for itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageLimits:
    """Limits of messages that clients send; the defaults are Apache's. 0 switches a limit off."""

    max_body_bytes: int = 4 * 1024 * 1024
    """maxMessageSize"""
    refuses_empty_bodies: bool = True
    """enableMessageBodyEmptyCheck"""
    max_user_properties: int = 128
    """userPropertyMaxNum"""
    max_user_property_bytes: int = 16 * 1024
    """maxUserPropertySize: names and values of all, with tag and keys"""
    max_message_group_bytes: int = 64
    """maxMessageGroupSize: a group is shorter"""
    max_delay_ms: int = 24 * 3_600_000
    """maxDelayTimeMills"""
    max_recovery_s: int = 3_600
    """maxTransactionRecoverySecond"""
    checks_types: bool = True
    """enableTopicMessageTypeCheck"""
