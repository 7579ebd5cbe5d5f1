"""PipelineError: why a pipeline failed, in one clear paragraph.

Spark reports a failure with the stack traces of its JVM and its Python processes. `short_reason` extracts the
text that a user can act on; `pipeline_errors` converts Spark's exceptions to PipelineError.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from kourou.errors import KourouError

# Including the line end: a quoted message may start with a traceback, but on one line.
TRACEBACK: Final = "Traceback (most recent call last):\n"
# Where the message ends and stack traces begin.
_STACKS: Final = re.compile(
    r"^\s*(at [\w$.<>/]+\(|\.\.\. \d+ more|Driver stacktrace:|JVM stacktrace:|Caused by: |== SQL|== DataFrame"
    r"|===|File \"|The above exception|During handling|Exception in thread)"
)
_WRAPPERS: Final = re.compile(
    r"^(?:\[STREAM_FAILED\] )?Query .{0,200}? terminated with exception: "
    r"|^Job aborted due to stage failure: |^Job aborted\.? ?"
    r"|^Task \d+ in stage [\d.]+ failed \d+ times?, most recent failure: "
    r"|^An error occurred while calling [\w.$]+\.\s*: "
    r"|^Lost task [\d.]+ in stage [\d.]+ \(TID \d+\) \([^)]*\): "
    r"|^(?:java|javax|scala|org|py4j)(?:\.\w+)+\.\w*(?:Exception|Error|Failure)\w*: "
)
_ERROR_LINE: Final = re.compile(r"^(?P<kind>[A-Za-z_][\w.]*): (?P<words>.*)$", re.S)
# Python's names for JVM exceptions, whose messages are complete.
_JVM_KIND: Final = re.compile(r"(?:pyspark\.errors|py4j\.protocol)(?:\.\w+)+")
_KOUROU: Final = re.compile(r"kourou(?:\.\w+)+")
_KOUROU_ERROR: Final = re.compile(r"kourou(?:\.\w+)+: ")
_SQLSTATE: Final = re.compile(r"\s*SQLSTATE: [0-9A-Z]{5}")
_CONDITION: Final = re.compile(r"^\[[A-Z0-9_.]+\] ")
# The prefix of `raise_error`, whose message may quote any value.
_RAISED_BY_QUERY: Final = "[USER_RAISED_EXCEPTION] "
# Spark's analysed plan follows the message.
_PLAN: Final = re.compile(r";\s*\n\s*['~!+:A-Z].*$", re.S)
_PLACE: Final = re.compile(r"\.?; line (\d+) pos (\d+);?\s*$")
_MAX_REASON_CHARS: Final = 2_000
_NO_REASON: Final = "Spark gave no reason"


class PipelineError(KourouError):
    """A pipeline failed; the message says where, why, and what to do if that is known."""


def short_reason(error: BaseException | str) -> str:
    """The reason of an error, of Spark or any other, without stack traces."""
    if isinstance(error, KourouError):
        return str(error)
    text = str(error)
    reason = _from_traceback(text) if TRACEBACK in text else _first_words(text)
    reason = _PLACE.sub(r" (line \1, pos \2)", _PLAN.sub("", _SQLSTATE.sub("", reason))).strip()
    if not reason:
        return _NO_REASON if isinstance(error, str) else f"{type(error).__name__}"
    return reason if len(reason) <= _MAX_REASON_CHARS else f"{reason[:_MAX_REASON_CHARS]}…"


@contextmanager
def pipeline_errors(doing: str) -> Iterator[None]:
    """Convert Spark's exceptions to PipelineError: `doing: why`."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise PipelineError(f"{doing}: {short_reason(error)}") from error


def _from_traceback(text: str) -> str:
    """The message of the innermost error of a Python process."""
    lines = text.rpartition(TRACEBACK)[2].splitlines()
    # Lines of a stack trace are indented; the error follows unindented, and may have several lines.
    begin = next((at for at, line in enumerate(lines) if line and not line[0].isspace()), len(lines))
    words = "\n".join(_until_stack(lines[begin:]))
    match = _ERROR_LINE.match(words)
    if match is None:
        return words
    if _JVM_KIND.fullmatch(match["kind"]):
        return _unwrapped(match["words"])
    return match["words"] if _KOUROU.fullmatch(match["kind"]) else f"{_last(match['kind'])}: {match['words']}"


def _first_words(text: str) -> str:
    return _unwrapped("\n".join(_until_stack(text.strip().splitlines())))


def _unwrapped(words: str) -> str:
    while (shorter := _WRAPPERS.sub("", words, count=1).lstrip()) != words:
        words = shorter
    if words.startswith(_RAISED_BY_QUERY):
        return words.removeprefix(_RAISED_BY_QUERY)
    ours = _KOUROU_ERROR.search(words)
    return words[ours.end() :] if ours else _CONDITION.sub("", words)


def _until_stack(lines: list[str]) -> list[str]:
    kept: list[str] = []
    for line in lines:
        if _STACKS.match(line) or (kept and not line.strip()):
            break
        kept.append(line.rstrip())
    return kept


def _last(kind: str) -> str:
    return kind.rpartition(".")[2]
