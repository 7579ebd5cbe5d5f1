"""`mqbroker`: the broker with Apache's options. Not in this version."""

from __future__ import annotations

from kourou.cli.not_yet import exit_not_yet


def main() -> None:
    """Entry point."""
    exit_not_yet("mqbroker", "the broker")


if __name__ == "__main__":
    main()
