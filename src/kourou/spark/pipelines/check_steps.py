"""The steps of a pipeline's file, checked: SQL, and Python functions, which are imported now."""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Final

from kourou.spark.pipelines.check_sources import NAME_FORM, check_watermark
from kourou.spark.pipelines.document import nearest
from kourou.spark.pipelines.section import Section
from kourou.spark.pipelines.spec import PythonStep, SqlStep, StepFunction, StepSpec
from kourou.spark.pipelines.sql_names import table_names

STEP_KEYS: Final = ("name", "sql", "python", "input", "watermark")
_PATH: Final = re.compile(r"(?P<module>[A-Za-z_]\w*(\.[A-Za-z_]\w*)*):(?P<function>[A-Za-z_]\w*)")
_PYTHON_FORM: Final = "its form is package.module:function"
_SIGNATURE: Final = "it has to take (frame), or (spark, frames)"


def check_step(section: Section, before: list[str], later: list[str]) -> StepSpec | None:
    """One step. `before` are the names that it may use, `later` those that come behind it."""
    name = section.needed("name")
    if name:
        section.what = f"step {name}"
        if not NAME_FORM.fullmatch(name):
            section.mistake("name", f"{name!r}: a name has letters, digits and _ only: it is a view")
    if section.has("sql") == section.has("python"):
        section.take("sql"), section.take("python"), section.take("input")
        section.mistake("python", "a step has either sql or python")
        step: StepSpec | None = None
    else:
        step = (_sql if section.has("sql") else _python)(name, section, before, later)
    section.finish(STEP_KEYS)
    return step


def _sql(name: str, section: Section, before: list[str], later: list[str]) -> StepSpec | None:
    sql = section.text("sql")
    if section.has("input"):
        section.take("input")
        section.mistake("input", "it is for python; SQL names what it reads behind FROM")
    if sql is None:
        return None
    sql = sql.rstrip(";").rstrip()
    for table in table_names(sql):
        if problem := _table_problem(table, name, before, later):
            section.mistake("sql", problem)
    return SqlStep(name, section.begin, sql, check_watermark(section))


def _table_problem(table: str, step: str, before: list[str], later: list[str]) -> str | None:
    """Only what is surely wrong: a table may be one of Spark's catalog."""
    if table.lower() in (name.lower() for name in before):
        return None
    if table.lower() == step.lower():
        return "it reads from itself"
    if table.lower() in (name.lower() for name in later):
        return f"{table} comes later; a step may read what is before it"
    if get_close_matches(table.lower(), [name.lower() for name in before], n=1, cutoff=0.75):
        return f"there is no source or step {table}; {nearest(table, before)}"
    return None


def _python(name: str, section: Section, before: list[str], later: list[str]) -> StepSpec | None:
    path = section.text("python")
    function = _function(section, path) if path else None
    watermark = check_watermark(section)
    inputs = section.words("input")
    for given in inputs:
        if given not in before:
            problem = f"{given} comes later" if given in later else f"there is no source or step {given}"
            section.mistake("input", f"{problem}; {nearest(given, before)}")
    if path is None or function is None:
        return None
    takes_session = _takes_session(section, function)
    if not section.has("input"):
        inputs = tuple(before if takes_session else before[-1:])
    if takes_session is False and len(inputs) != 1:
        section.mistake("input", f"{path} takes one frame, and there are {len(inputs)}")
    return PythonStep(name, section.begin, path, function, inputs, bool(takes_session), watermark)


def _function(section: Section, path: str) -> StepFunction | None:
    match = _PATH.fullmatch(path)
    if match is None:
        section.mistake("python", f"{path!r}: {_PYTHON_FORM}")
        return None
    try:
        with importing_from(str(section.folder)):
            module = importlib.import_module(match["module"])
    # Whatever a module of the user's raises is told, and the other mistakes with it.
    except (Exception, SystemExit) as error:
        section.mistake("python", f"{match['module']} cannot be imported: {type(error).__name__}: {error}")
        return None
    function = getattr(module, match["function"], None)
    if function is None:
        names = [name for name, value in vars(module).items() if inspect.isfunction(value)]
        section.mistake(
            "python", f"{match['module']} has no {match['function']}; {nearest(match['function'], names)}"
        )
        return None
    if not callable(function):
        section.mistake("python", f"{path} is no function")
        return None
    return function  # type: ignore[no-any-return]


def _takes_session(section: Section, function: StepFunction) -> bool | None:
    """Whether it is called with (spark, frames); None, and a mistake, where it can be called with neither."""
    signature = inspect.signature(function)
    for arguments, answer in (((None, None), True), ((None,), False)):
        try:
            signature.bind(*arguments)
        except TypeError:
            continue
        return answer
    section.mistake("python", f"{section.text('python')}{signature}: {_SIGNATURE}")
    return None


@contextmanager
def importing_from(folder: str) -> Iterator[None]:
    """Modules beside the file are found, and stay importable: a step may import more while it runs."""
    if folder not in sys.path:
        sys.path.insert(0, folder)
    importlib.invalidate_caches()
    yield
