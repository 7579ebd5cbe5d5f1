"""`python -m benchmarks NAME [ARGUMENT …]`: run one measurement; without words, `compare --quick`."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

HERE = Path(__file__).parent
DEFAULT = ("compare", "--quick")


def names() -> list[str]:
    """The measurements there are."""
    return sorted(path.stem for path in HERE.glob("*.py") if not path.stem.startswith("_"))


def main(words: list[str]) -> int:
    """Run the one that is named, with the words after it; 2 when it is not known."""
    name, *arguments = words or DEFAULT
    if name not in names():
        stream = sys.stdout if name in ("-h", "--help") else sys.stderr
        print(f"usage: python -m benchmarks NAME [ARGUMENT …]\nNAME: {', '.join(names())}", file=stream)
        return 0 if stream is sys.stdout else 2
    # As their own command line would be; they end by sys.exit.
    sys.argv = [name, *arguments]
    runpy.run_module(f"benchmarks.{name}", run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
