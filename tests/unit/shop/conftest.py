"""The sample in examples/shop is not installed: its package `webshop` is found by the path."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "examples" / "shop"))
