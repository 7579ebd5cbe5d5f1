"""Commands that Apache's tools do not have."""

from __future__ import annotations

from typing import Final

from kourou.cli.admin.command import AdminCommand
from kourou.cli.admin.completion import COMPLETION
from kourou.cli.admin.kourou.atomic_list import ATOMIC_LIST
from kourou.cli.admin.kourou.doctor import DOCTOR
from kourou.cli.admin.kourou.forget import ATOMIC_FORGET, PRODUCER_FORGET
from kourou.cli.admin.kourou.handover import HANDOVER
from kourou.cli.admin.kourou.redrive import REDRIVE
from kourou.cli.admin.kourou.top import TOP
from kourou.cli.admin.kourou.topic_overflow import TOPIC_OVERFLOW

KOUROU_COMMANDS: Final[tuple[AdminCommand, ...]] = (
    TOP,
    DOCTOR,
    HANDOVER,
    REDRIVE,
    ATOMIC_LIST,
    ATOMIC_FORGET,
    PRODUCER_FORGET,
    TOPIC_OVERFLOW,
    COMPLETION,
)
"""In the order of the command list."""
