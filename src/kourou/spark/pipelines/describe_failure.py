"""describe_failure: why a query of a pipeline failed, and in which of its steps.

Spark appends the query's plan to the text of a failure. The plan contains every expression of the pipeline,
including the check of values, so only the text before it is relevant. The step is found from what Spark and
Python report: the SQL text, the line that built the expression, or the frames of a traceback.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from kourou.spark.pipelines.check.spec import PythonStep, SqlStep, StepSpec
from kourou.spark.pipelines.pipeline_errors import TRACEBACK, short_reason
from kourou.spark.pipelines.sql.values import BAD_RECORD

_REPORT: Final = re.compile(r"^=== Streaming Query ===$", re.M)
_FRAME: Final = re.compile(r'^ *File "(?P<file>[^"\n]+)", line (?P<line>\d+), in (?P<name>.+)$', re.M)
_CALLED: Final = re.compile(
    r'^== DataFrame ==\n"(?P<name>[^"\n]*)" was called from\n(?P<file>[^\n]+):(?P<line>\d+)$', re.M
)
_SQL: Final = re.compile(r"^== SQL[^\n]*==\n(?P<text>.*)", re.M | re.S)
_MARKER_LINE: Final = re.compile(r"^[ ^]*$", re.M)


def describe_failure(text: str, steps: Sequence[StepSpec] = ()) -> str:
    """Why Spark failed: `step NAME: reason (place)`; for a bad record only its description."""
    cause = _REPORT.split(text, maxsplit=1)[0]
    reason = short_reason(cause)
    if reason.startswith(BAD_RECORD):
        line = reason.removeprefix(BAD_RECORD).splitlines()[0]
        shown = "".join(sign if sign.isprintable() else "\N{REPLACEMENT CHARACTER}" for sign in line)
        return f"{shown}. set badRecords to keep such records instead of failing"
    step, place = _failed_step(cause, steps)
    return f"{f'step {step}: ' if step else ''}{reason}{f' ({place})' if place else ''}"


def _failed_step(cause: str, steps: Sequence[StepSpec]) -> tuple[str, str]:
    """The step's name, and the place in its Python code; empty if unknown."""
    innermost = cause.rpartition(TRACEBACK)[2]
    if found := _SQL.search(innermost):
        return _sql_step(found["text"], steps), ""
    if found := _CALLED.search(innermost):
        name = _python_step(found["file"], int(found["line"]), steps)
        return name, _place(found["file"], found["line"]) if name else ""
    if TRACEBACK not in cause:
        return "", ""
    for frame in reversed(list(_FRAME.finditer(innermost))):
        if name := _python_step(frame["file"], int(frame["line"]), steps):
            return name, f"{_place(frame['file'], frame['line'])}, in {frame['name']}"
    return "", ""


def _sql_step(shown: str, steps: Sequence[StepSpec]) -> str:
    """The step whose SQL is quoted. The lines of SQL are followed by others, with ^ under the failed part."""
    text = _one_line(_MARKER_LINE.sub("", shown))
    fitting = [step for step in steps if isinstance(step, SqlStep) and text.startswith(_one_line(step.sql))]
    return max(fitting, key=lambda step: len(step.sql)).name if fitting else ""


def _python_step(file: str, line: int, steps: Sequence[StepSpec]) -> str:
    """The step whose function contains this line, or else those whose module does."""
    of_module = [step for step in steps if isinstance(step, PythonStep) and _module_file(step) == file]
    of_function = [step for step in of_module if line in _lines(step)]
    return " or ".join(step.name for step in of_function or of_module)


def _module_file(step: PythonStep) -> str:
    return str(getattr(sys.modules.get(step.module), "__file__", None))


def _lines(step: PythonStep) -> range:
    try:
        lines, begin = inspect.getsourcelines(getattr(sys.modules[step.module], step.function_name))
    except (KeyError, AttributeError, OSError, TypeError):
        return range(0)
    return range(begin, begin + len(lines))


def _place(file: str, line: str) -> str:
    return f"{Path(file).name}:{line}"


def _one_line(sql: str) -> str:
    return " ".join(sql.split())
