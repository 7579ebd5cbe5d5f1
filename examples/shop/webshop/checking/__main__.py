"""python -m webshop.checking [--live]

Checks the invariants of the shop of SHOP_SETTINGS, when it has come to rest; with --live while it works.
Exit code 1 if something is wrong, 2 if the database is away.
"""

from __future__ import annotations

import argparse
import asyncio
import sys

import psycopg

from webshop.checking.invariants import Finding, check
from webshop.settings import Settings, SettingsError


async def _check(settings: Settings, *, is_final: bool) -> list[Finding]:
    async with await psycopg.AsyncConnection.connect(settings.database) as connection:
        return await check(connection, is_final=is_final, pay_within_s=settings.pay_within_s)


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m webshop.checking", description="Check the invariants.")
    parser.add_argument(
        "--live", action="store_true", help="while the shop works: what is on its way is right"
    )
    live = parser.parse_args().live
    try:
        findings = asyncio.run(_check(Settings.load(), is_final=not live))
    except SettingsError as error:
        print(f"not checked: {error}", file=sys.stderr)
        return 2
    except psycopg.OperationalError as error:
        print(f"not checked: {str(error).strip()}; does the shop run?", file=sys.stderr)
        return 2
    for finding in findings:
        print(f"{'on its way' if finding.is_pending else 'WRONG'}: {finding.rule}: {finding.text}")
    wrong = sum(not finding.is_pending for finding in findings)
    print(f"{wrong} wrong" if wrong else "all invariants hold")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
