"""`kourou version`: the version, the Python that runs it, and whether brokers use the compiled kernel."""

from __future__ import annotations

import platform
import sys

import msgspec

from kourou import __version__
from kourou.store.kernel import choose_kernel


def run_version(*, as_json: bool) -> None:
    """Print the versions of Kourou and Python, and whether the kernel is in use."""
    kernel = choose_kernel()
    python = f"{platform.python_implementation()} {platform.python_version()}"
    system = f"{sys.platform} {platform.machine()}"
    if as_json:
        facts = {
            "version": __version__,
            "python": python,
            "platform": system,
            "kernel": {
                "inUse": kernel.kernel is not None,
                "problem": kernel.problem or None,
                "cure": kernel.cure or None,
            },
        }
        print(msgspec.json.encode(facts).decode())
        return
    print(f"kourou {__version__}, {python}, {system}\n{kernel}")
