"""The load generator for gRPC ports, written in Go (grpc_load): building it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

SOURCE = Path(__file__).parent / "grpc_load"


def build_load(folder: Path) -> Path:
    """The program, built into `folder`. Its modules are downloaded once."""
    go = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")
    if go is None:
        raise SystemExit("grpc_load is written in Go: install it (https://go.dev/dl)")
    program = folder / "grpc_load"
    subprocess.run([go, "build", "-o", str(program), "."], cwd=SOURCE, check=True)
    return program
