"""`mqadmin`: the administration commands, under RocketMQ's name."""

from __future__ import annotations

import sys

from kourou.cli.admin.run import main as run_admin


def main() -> None:
    """Entry point of `mqadmin`; exits with the command's code."""
    run_admin("mqadmin", sys.argv[1:])


if __name__ == "__main__":
    main()
