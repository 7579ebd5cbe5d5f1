"""All commands about messages, in the order of the command list."""

from __future__ import annotations

from typing import Final

from kourou.cli.admin.message.place_commands import PLACE_COMMANDS
from kourou.cli.admin.message.print_commands import PRINT_COMMANDS
from kourou.cli.admin.message.query_commands import QUERY_COMMANDS
from kourou.cli.admin.message.send_commands import SEND_COMMANDS

MESSAGE_COMMANDS: Final = (*QUERY_COMMANDS, *PRINT_COMMANDS, *SEND_COMMANDS, *PLACE_COMMANDS)
