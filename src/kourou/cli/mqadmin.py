"""`mqadmin`: the administration commands. Not in this version."""

from __future__ import annotations

from kourou.cli.not_yet import exit_not_yet


def main() -> None:
    """Entry point."""
    exit_not_yet("mqadmin", "the administration command")


if __name__ == "__main__":
    main()
