"""plain_errors: what went wrong is told in a few lines, without the stack of Spark's Python process.

Spark leaves the stack out where an environment variable of the process says so. Ours says so when the error
is one of Kourou's own, whose text is complete. A process of Spark's that reports an error ends with it, so no
other error loses its stack; processes of users are left as they are.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from kourou.errors import KourouError
from kourou.spark.spark_processes import is_sparks_process

_HIDE: Final = "SPARK_HIDE_TRACEBACK"


@contextmanager
def plain_errors() -> Iterator[None]:
    """For methods that Spark calls; a decorator, too."""
    try:
        yield
    except KourouError:
        if is_sparks_process():
            os.environ[_HIDE] = "1"
        raise
