"""A pipeline's file checked: PipelineSpec, or every mistake in it at once, with its line.

    FILE:LINE: what is wrong; the nearest right name

Neither Spark nor a server is asked here (reachable.py does that).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from kourou.spark.pipelines.check.check_sinks import check_bad_records, check_same_names, check_sink
from kourou.spark.pipelines.check.check_sources import Surroundings, check_duration, check_source
from kourou.spark.pipelines.check.check_steps import check_step
from kourou.spark.pipelines.check.document import Mistakes, Value, nearest, read_document
from kourou.spark.pipelines.check.section import Section
from kourou.spark.pipelines.check.spec import (
    BadRecords,
    PipelineSpec,
    SinkSpec,
    SourceSpec,
    StepSpec,
    TopicSource,
)

KEYS: Final = (
    "name", "namesrv", "sources", "steps", "sinks", "badRecords", "trigger", "checkpoint", "spark", "jars",
)  # fmt: skip
_TRIGGERS: Final = ("availableNow", "processingTime", "once")
_AVRO_JAR: Final = "spark-avro"


def load_pipeline(path: Path, environ: Mapping[str, str] = os.environ) -> PipelineSpec:
    """The pipeline that a file declares. PipelineFileError: every mistake in it."""
    mistakes = Mistakes(str(path))
    document = read_document(path, environ, mistakes)
    spec = _Checker(path, document, environ, mistakes).spec()
    mistakes.finish()
    return spec


class _Checker:
    """Walks through one document."""

    def __init__(self, path: Path, document: Value, environ: Mapping[str, str], mistakes: Mistakes) -> None:
        self._path = path.resolve()
        self._mistakes = mistakes
        self._top = Section(document, "", mistakes, self._path.parent)
        namesrv = self._top.text("namesrv") or environ.get("NAMESRV_ADDR") or None
        self._around = Surroundings(namesrv, environ)

    def spec(self) -> PipelineSpec:
        """The whole."""
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
            self._mistakes.add(1, "sources is missing: what the pipeline reads, by name")
        section = self._top.section("sources")
        found = []
        for name in section.names if section else ():
            value = section.take(name) if section else None
            if value is not None:
                inner = Section(value, f"source {name}", self._mistakes, self._path.parent)
                found.append(check_source(name, inner, self._around))
        return [source for source in found if source is not None]

    def _declared_sources(self) -> list[str]:
        """Also those with mistakes: a step that names one is right."""
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
                section.mistake("name", "another source or step has this name")
            elif name:
                before.append(name)
        return [step for step in found if step is not None]

    def _sinks(self, before: list[str], is_stream: bool) -> list[SinkSpec]:
        if not self._top.has("sinks"):
            self._mistakes.add(1, "sinks is missing: where the pipeline writes, as a list")
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
            self._mistakes.add(value.line, f"{key}: this is {value.kind}, and has to be a list (- …)")
            return []
        if not value.content:
            self._mistakes.add(value.line, f"{key}: it is empty")
        return value.content

    # -- the rest --------------------------------------------------------------------------------

    def _settings(self) -> dict[str, str]:
        section = self._top.section("spark")
        if section is None:
            return {}
        for name in section.names:
            if not name.startswith("spark."):
                section.mistake(name, f"Spark's settings begin with spark.; did you mean spark.{name}?")
        return section.all_options()

    def _jars(self) -> tuple[str, ...]:
        found = []
        for jar in self._top.words("jars"):
            path = jar if "://" in jar else str((self._path.parent / jar).resolve())
            if "://" not in path and not Path(path).is_file():
                self._top.mistake("jars", f"there is no file {path}")
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
            self._top.mistake("trigger", f"it is one of {', '.join(_TRIGGERS)}")
            return {}
        name = section.names[0]
        return self._trigger_of(section, name, name, section.text(name))

    def _trigger_of(self, section: Section, key: str, word: str, argument: str | None) -> dict[str, Any]:
        if word == "continuous":
            section.mistake(key, "Python sources have no continuous mode; use processingTime")
        elif word not in _TRIGGERS:
            section.mistake(key, f"there is no trigger {word!r}; {nearest(word, list(_TRIGGERS))}")
        elif word == "processingTime":
            check_duration(section, key, argument)
            return {word: argument or ""}
        elif argument not in (None, "true", "yes"):
            section.mistake(key, f"it is true, or {word} alone")
        return {word: True} if word in _TRIGGERS else {}

    def _check_whole(self, spec: PipelineSpec) -> None:
        top = self._top
        if spec.is_stream and spec.checkpoint is None and not top.has("checkpoint"):
            self._mistakes.add(1, "checkpoint is missing: the folder in which streams note how far they are")
        if spec.is_stream and spec.checkpoint is not None and "://" in (top.text("checkpoint") or ""):
            top.mistake("checkpoint", "it has to be a folder that this machine sees")
        has_topics = any(isinstance(source, TopicSource) for source in spec.sources)
        for key in ("trigger", "checkpoint"):
            if top.has(key) and spec.sources and not spec.is_stream and not self._mistakes.found:
                top.mistake(key, "it is for streams, and no source is one")
        if top.has("badRecords") and spec.sources and not any(source.value for source in spec.topics):
            what = "no source says what its value is" if has_topics else "no source is a topic"
            top.mistake("badRecords", f"{what}, so that no record can be bad")
        for source in spec.topics:
            if source.value is not None and source.value.format == "avro" and not _has_avro(spec):
                self._mistakes.add(
                    source.line,
                    f"source {source.name}: avro needs Spark's module {_AVRO_JAR}: name its jar in jars",
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
