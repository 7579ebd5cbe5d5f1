"""Commands that Apache's tools do not have."""

from __future__ import annotations

from typing import Final

from kourou.cli.admin.command import AdminCommand
from kourou.cli.admin.completion import COMPLETION
from kourou.cli.admin.kourou_doctor import DOCTOR
from kourou.cli.admin.kourou_redrive import REDRIVE
from kourou.cli.admin.kourou_top import TOP

KOUROU_COMMANDS: Final[tuple[AdminCommand, ...]] = (TOP, DOCTOR, REDRIVE, COMPLETION)
"""In the order of the list."""
