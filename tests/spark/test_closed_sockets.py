"""A worker of Spark's daemon whose reader goes away: without a JVM, by the daemon's own protocol."""

from __future__ import annotations

import os
import select
import socket
import struct
import subprocess
import sys
from pathlib import Path

from tests.needed import need_module

need_module("pyspark")

SECRET = b"secret"
# As pyspark.worker: an OSError is an end of the work.
WORKER = """
import sys

def main(infile, outfile):
    import kourou.spark.source.data_source
    try:
        while True:
            outfile.write(b"rows")
            {work}
    except OSError:
        sys.exit(-1)
"""
TIMEOUT_S = 30


def errors_of_a_worker(folder: Path, work: str) -> str:
    """What a worker prints that writes rows and does `work`, when Spark closes its socket after the first."""
    (folder / "pyspark_worker_of_rows.py").write_text(WORKER.format(work=work))
    environ = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(folder), *sys.path]),
        "PYTHON_WORKER_FACTORY_SECRET": SECRET.decode(),
        "PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE": "1",
    }
    errors = folder / "stderr"
    with (
        errors.open("wb") as stderr,
        subprocess.Popen(
            [sys.executable, "-m", "pyspark.daemon", "pyspark_worker_of_rows"],
            env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr,
        ) as daemon,
    ):  # fmt: skip
        assert daemon.stdin is not None and daemon.stdout is not None
        (port,) = struct.unpack(">i", daemon.stdout.read(4))
        with socket.create_connection(("127.0.0.1", port), TIMEOUT_S) as spark:
            received = spark.makefile("rb")
            (pid,) = struct.unpack(">i", received.read(4))
            worker = os.pidfd_open(pid)
            spark.sendall(struct.pack(">i", len(SECRET)) + SECRET)
            assert received.read(6 + 4) == struct.pack(">i", 2) + b"ok" + b"rows"
            received.close()
        assert select.select([worker], [], [], TIMEOUT_S)[0], "the worker did not end"
        os.close(worker)
        daemon.stdin.close()
        daemon.wait(TIMEOUT_S)
    return errors.read_text()


def test_a_read_that_ends_early_leaves_no_broken_pipe_traceback(tmp_path: Path) -> None:
    assert errors_of_a_worker(tmp_path, "pass") == ""


def test_other_errors_of_a_worker_keep_their_traceback(tmp_path: Path) -> None:
    text = errors_of_a_worker(tmp_path, "outfile.flush(); raise RuntimeError('a fault')")
    assert "Traceback" in text and "RuntimeError: a fault" in text
