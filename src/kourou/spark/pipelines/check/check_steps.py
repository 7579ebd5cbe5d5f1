"""The steps of a pipeline's file, checked: SQL, and Python functions as their source shows them."""

from __future__ import annotations

import re
from typing import Final

from kourou import wording
from kourou.spark.pipelines.check.check_sources import NAME_FORM, check_watermark
from kourou.spark.pipelines.check.document import nearest
from kourou.spark.pipelines.check.section import Section
from kourou.spark.pipelines.check.spec import PythonStep, SqlStep, StepSpec
from kourou.spark.pipelines.sql.sql_names import table_names
from kourou.spark.pipelines.step_functions import StepError, check_source

STEP_KEYS: Final = ("name", "sql", "python", "input", "watermark")
_PATH: Final = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
_PYTHON_FORM: Final = "its form is package.module:function"


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
    if wording.nearest(table, before, likeness=0.75):
        return f"there is no source or step {table}; {nearest(table, before)}"
    return None


def _python(name: str, section: Section, before: list[str], later: list[str]) -> StepSpec | None:
    path = section.text("python")
    watermark = check_watermark(section)
    inputs = section.words("input")
    for given in inputs:
        if given not in before:
            problem = f"{given} comes later" if given in later else f"there is no source or step {given}"
            section.mistake("input", f"{problem}; {nearest(given, before)}")
    if path is None:
        return None
    if _PATH.fullmatch(path) is None:
        section.mistake("python", f"{path!r}: {_PYTHON_FORM}")
        return None
    step = PythonStep(name, section.begin, path, section.line("python"), inputs, tuple(before), watermark)
    try:
        check_source(step, str(section.folder))
    except StepError as error:
        section.mistake("python", str(error))
    return step
