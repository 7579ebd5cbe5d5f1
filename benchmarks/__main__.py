"""`python -m benchmarks [NAME …]`: run the named measurements, or all of them."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

HERE = Path(__file__).parent


def names() -> list[str]:
    """The measurements there are."""
    return sorted(path.stem for path in HERE.glob("*.py") if not path.stem.startswith("_"))


def main(wanted: list[str]) -> int:
    """Run each in turn; 1 when one is not known."""
    unknown = [name for name in wanted if name not in names()]
    if unknown:
        print(f"no benchmark named {', '.join(unknown)}; there are: {', '.join(names())}", file=sys.stderr)
        return 1
    for name in wanted or names():
        print(f"\n== {name}")
        sys.argv = [name]
        runpy.run_module(f"benchmarks.{name}", run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
