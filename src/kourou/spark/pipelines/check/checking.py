"""A pipeline's file checked, steps included: PipelineSpec, or every mistake in it at once, with its line.

    FILE:LINE: what is wrong; the nearest valid name

Neither Spark nor a server is contacted here (reachable.py does that).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from kourou import wording
from kourou.spark.pipelines.check.check_sinks import check_bad_records, check_same_names, check_sink
from kourou.spark.pipelines.check.check_sources import (
    NAME_FORM,
    Surroundings,
    check_duration,
    check_source,
    check_watermark,
)
from kourou.spark.pipelines.check.document import Mistakes, Value, nearest, read_document
from kourou.spark.pipelines.check.section import Section
from kourou.spark.pipelines.check.spec import (
    BadRecords,
    PipelineSpec,
    PythonStep,
    SinkSpec,
    SourceSpec,
    SqlStep,
    StepSpec,
    TopicSource,
)
from kourou.spark.pipelines.sql.sql_names import table_names
from kourou.spark.pipelines.step_functions import StepError, check_step_source

KEYS: Final = (
    "name", "namesrv", "sources", "steps", "sinks", "badRecords", "trigger", "checkpoint", "spark", "jars",
)  # fmt: skip
_TRIGGERS: Final = ("availableNow", "processingTime", "once")
_AVRO_JAR: Final = "spark-avro"
STEP_KEYS: Final = ("name", "sql", "python", "input", "watermark")
_PATH: Final = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
_PYTHON_FORM: Final = "the format is package.module:function"


def load_pipeline(
    path: Path,
    environ: Mapping[str, str] = os.environ,
    *,
    check: Callable[[PipelineSpec, Mistakes], None] | None = None,
) -> PipelineSpec:
    """The pipeline declared in a file. PipelineFileError lists every mistake, including those that `check`
    adds."""
    mistakes = Mistakes(str(path))
    document = read_document(path, environ, mistakes)
    spec = _Checker(path, document, environ, mistakes).spec()
    if check is not None:
        check(spec, mistakes)
    mistakes.finish()
    return spec


class _Checker:
    def __init__(self, path: Path, document: Value, environ: Mapping[str, str], mistakes: Mistakes) -> None:
        self._path = path.resolve()
        self._mistakes = mistakes
        self._top = Section(document, "", mistakes, self._path.parent)
        namesrv = self._top.text("namesrv") or environ.get("NAMESRV_ADDR") or None
        self._around = Surroundings(namesrv, environ)

    def spec(self) -> PipelineSpec:
        top = self._top
        name = top.text("name") or self._path.stem
        settings = self._settings()
        jars = self._jars()
        sources = self._sources()
        is_stream = any(source.is_stream for source in sources)
        steps = self._steps(self._declared_sources())
        sinks = self._sinks([*self._declared_sources(), *self._declared_steps()], is_stream)
        bad = top.take("badRecords")
        spec = PipelineSpec(
            file=self._path,
            name=name,
            sources=tuple(sources),
            steps=tuple(steps),
            sinks=tuple(sinks),
            bad_records=check_bad_records(bad, self._mistakes, top, self._around) if bad else BadRecords(),
            trigger=self._trigger(),
            checkpoint=Path(top.path("checkpoint")) if top.has("checkpoint") else None,
            settings=settings,
            jars=jars,
        )
        top.finish(KEYS)
        self._check_whole(spec)
        return spec

    # -- parts -----------------------------------------------------------------------------------

    def _sources(self) -> list[SourceSpec]:
        if not self._top.has("sources"):
            self._mistakes.add(1, "sources is missing: a mapping of what the pipeline reads")
        section = self._top.section("sources")
        found = []
        for name in section.names if section else ():
            value = section.take(name) if section else None
            if value is not None:
                inner = Section(value, f"source {name}", self._mistakes, self._path.parent)
                found.append(check_source(name, inner, self._around))
        return [source for source in found if source is not None]

    def _declared_sources(self) -> list[str]:
        """Including those with mistakes: naming one in a step is not another mistake."""
        value = self._top.take("sources")
        return list(value.content) if value is not None and isinstance(value.content, dict) else []

    def _declared_steps(self) -> list[str]:
        names = [_text_of(item, "name") for item in self._items("steps")]
        return [name for name in names if name]

    def _steps(self, sources: list[str]) -> list[StepSpec]:
        found = []
        declared = self._declared_steps()
        before = list(sources)
        for at, value in enumerate(self._items("steps"), 1):
            section = Section(value, f"step {at}", self._mistakes, self._path.parent)
            name = _text_of(value, "name") or ""
            later = declared[declared.index(name) + 1 :] if name in declared else []
            found.append(check_step(section, before, later))
            if name in before:
                section.mistake("name", "the name is already used by a source or step")
            elif name:
                before.append(name)
        return [step for step in found if step is not None]

    def _sinks(self, before: list[str], is_stream: bool) -> list[SinkSpec]:
        if not self._top.has("sinks"):
            self._mistakes.add(1, "sinks is missing: a list of where the pipeline writes")
        found = []
        for number, value in enumerate(self._items("sinks"), 1):
            section = Section(value, f"sink {number}", self._mistakes, self._path.parent)
            found.append(check_sink(section, number, before, self._around, is_stream=is_stream))
        sinks = [sink for sink in found if sink is not None]
        check_same_names(sinks, self._mistakes)
        return sinks

    def _items(self, key: str) -> list[Value]:
        value = self._top.take(key)
        if value is None:
            return []
        if not isinstance(value.content, list):
            self._mistakes.add(value.line, f"{key}: must be a list (- …), not {value.kind}")
            return []
        if not value.content:
            remedy = "; remove the key" if key == "steps" else ""
            self._mistakes.add(value.line, f"{key}: the list is empty{remedy}")
        return value.content

    # -- the rest --------------------------------------------------------------------------------

    def _settings(self) -> dict[str, str]:
        section = self._top.section("spark")
        if section is None:
            return {}
        for name in section.names:
            if not name.startswith("spark."):
                section.mistake(name, f"Spark's settings start with spark.; did you mean spark.{name}?")
        return section.all_options()

    def _jars(self) -> tuple[str, ...]:
        found = []
        for jar in self._top.words("jars"):
            path = jar if "://" in jar else str((self._path.parent / jar).resolve())
            if "://" not in path and not Path(path).is_file():
                self._top.mistake("jars", f"no such file: {path}")
            found.append(path)
        return tuple(found)

    def _trigger(self) -> dict[str, Any]:
        value = self._top.take("trigger")
        if value is None:
            return {}
        if value.text is not None:
            return self._trigger_of(self._top, "trigger", value.text, None)
        section = self._top.section("trigger")
        if section is None or len(section.names) != 1:
            self._top.mistake("trigger", f"must be one of {', '.join(_TRIGGERS)}")
            return {}
        name = section.names[0]
        return self._trigger_of(section, name, name, section.text(name))

    def _trigger_of(self, section: Section, key: str, word: str, argument: str | None) -> dict[str, Any]:
        if word == "continuous":
            section.mistake(key, "Python sources do not support continuous mode; use processingTime")
        elif word not in _TRIGGERS:
            section.mistake(key, f"unknown trigger {word!r}; {nearest(word, list(_TRIGGERS))}")
        elif word == "processingTime":
            check_duration(section, key, argument)
            return {word: argument or ""}
        elif argument not in (None, "true", "yes"):
            section.mistake(key, f"must be true, or just {word}")
        return {word: True} if word in _TRIGGERS else {}

    def _check_whole(self, spec: PipelineSpec) -> None:
        top = self._top
        if spec.is_stream and spec.checkpoint is None and not top.has("checkpoint"):
            self._mistakes.add(1, "checkpoint is missing: the folder for the progress of streams")
        if spec.is_stream and spec.checkpoint is not None and "://" in (top.text("checkpoint") or ""):
            top.mistake("checkpoint", "must be a folder that this machine can access")
        are_clear = bool(spec.sources) and len(spec.sources) == len(self._declared_sources())
        has_topics = any(isinstance(source, TopicSource) for source in spec.sources)
        for key in ("trigger", "checkpoint"):
            if top.has(key) and are_clear and not spec.is_stream:
                top.mistake(key, "it requires a stream, and no source is one")
        if top.has("badRecords") and spec.sources and not any(source.value for source in spec.topics):
            what = "no source declares its value" if has_topics else "no source is a topic"
            top.mistake("badRecords", f"{what}, so no record can be bad")
        for source in spec.topics:
            if source.value is not None and source.value.format == "avro" and not _has_avro(spec):
                self._mistakes.add(
                    source.line,
                    f"source {source.name}: avro requires Spark's module {_AVRO_JAR}: add its jar to jars",
                )


def _has_avro(spec: PipelineSpec) -> bool:
    told = [*spec.jars, spec.settings.get("spark.jars", ""), spec.settings.get("spark.jars.packages", "")]
    if any(_AVRO_JAR in text for text in told):
        return True
    found = find_spec("pyspark")
    folders = found.submodule_search_locations if found is not None else None
    return any(next(iter(Path(folder, "jars").glob(f"{_AVRO_JAR}*")), None) for folder in folders or ())


def _text_of(value: Value, key: str) -> str | None:
    inner = value.content.get(key) if isinstance(value.content, dict) else None
    return None if inner is None else inner.text


def check_step(section: Section, before: list[str], later: list[str]) -> StepSpec | None:
    """One step. `before` are the names that it may use, `later` those declared after it."""
    name = section.needed("name")
    if name:
        section.what = f"step {name}"
        if not NAME_FORM.fullmatch(name):
            section.mistake(
                "name", f"{name!r}: a name may only have letters, digits and _, as it becomes a view"
            )
    if section.has("sql") == section.has("python"):
        section.take("sql"), section.take("python"), section.take("input")
        section.mistake("python", "a step needs either sql or python")
        step: StepSpec | None = None
    else:
        step = (_sql if section.has("sql") else _python)(name, section, before, later)
    section.finish(STEP_KEYS)
    return step


def _sql(name: str, section: Section, before: list[str], later: list[str]) -> StepSpec | None:
    sql = section.text("sql")
    if section.has("input"):
        section.take("input")
        section.mistake("input", "it only applies to python; SQL names its tables in FROM")
    if sql is None:
        return None
    sql = sql.rstrip(";").rstrip()
    for table in table_names(sql):
        if problem := _table_problem(table, name, before, later):
            section.mistake("sql", problem)
    return SqlStep(name, section.begin, sql, check_watermark(section))


def _table_problem(table: str, step: str, before: list[str], later: list[str]) -> str | None:
    """Only certain mistakes: a table may be in Spark's catalog."""
    if table.lower() in (name.lower() for name in before):
        return None
    if table.lower() == step.lower():
        return "the step reads from itself"
    if table.lower() in (name.lower() for name in later):
        return f"{table} is declared later; a step can only read what is declared before it"
    if wording.nearest(table, before, likeness=0.75):
        return f"unknown source or step {table}; {nearest(table, before)}"
    return None


def _python(name: str, section: Section, before: list[str], later: list[str]) -> StepSpec | None:
    path = section.text("python")
    watermark = check_watermark(section)
    inputs = section.words("input")
    for given in inputs:
        if given not in before:
            problem = f"{given} is declared later" if given in later else f"unknown source or step {given}"
            section.mistake("input", f"{problem}; {nearest(given, before)}")
    if path is None:
        return None
    if _PATH.fullmatch(path) is None:
        section.mistake("python", f"{path!r}: {_PYTHON_FORM}")
        return None
    step = PythonStep(name, section.begin, path, section.line("python"), inputs, tuple(before), watermark)
    try:
        check_step_source(step, str(section.folder))
    except StepError as error:
        section.mistake("python", str(error))
    return step
