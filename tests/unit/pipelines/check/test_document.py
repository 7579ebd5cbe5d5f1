"""A pipeline's YAML as values with lines; what is wrong with the text itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from kourou.spark.pipelines.check.document import Mistakes, PipelineFileError, Value, nearest, read_document
from tests.needed import need_module

need_module("yaml")


def read(tmp_path: Path, text: str | bytes, **environ: str) -> tuple[Value, list[tuple[int, str]]]:
    """The document, and the mistakes noted in it."""
    file = tmp_path / "p.yaml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    mistakes = Mistakes("p.yaml")
    value = read_document(file, environ, mistakes)
    return value, list(mistakes.found)


def refused(tmp_path: Path, text: str | bytes) -> PipelineFileError:
    with pytest.raises(PipelineFileError) as caught:
        read(tmp_path, text)
    return caught.value


def test_scalars_stay_the_text_that_was_written(tmp_path: Path) -> None:
    value, mistakes = read(tmp_path, "a: no\nb: 0123\nc: 2026-01-31\nd: '1e3'\ne: ~\nf:\n")
    assert mistakes == []
    assert isinstance(value.content, dict)
    texts = {name: inner.content for name, inner in value.content.items()}
    assert texts == {"a": "no", "b": "0123", "c": "2026-01-31", "d": "1e3", "e": None, "f": None}


def test_values_know_their_lines(tmp_path: Path) -> None:
    value, _ = read(tmp_path, "a: 1\nb:\n  - x\n  - {c: y}\n")
    assert isinstance(value.content, dict)
    items = value.content["b"].content
    assert isinstance(items, list)
    assert [item.line for item in items] == [3, 4]
    assert value.plain() == {"a": 1, "b": ["x", {"c": "y"}]}


def test_repeated_keys_are_mistakes(tmp_path: Path) -> None:
    _, mistakes = read(tmp_path, "a: 1\nb: 2\na: 3\n")
    assert mistakes == [(3, "duplicate key a, first used on line 1")]


def test_merge_keys_take_what_another_mapping_has(tmp_path: Path) -> None:
    value, mistakes = read(tmp_path, "base: &b {x: 1, y: 2}\nc:\n  <<: *b\n  y: 3\n")
    assert mistakes == []
    assert value.plain()["c"] == {"x": 1, "y": 3}


def test_an_alias_inside_itself_is_a_mistake(tmp_path: Path) -> None:
    _, mistakes = read(tmp_path, "a: &a [*a]\n")
    assert [what for _, what in mistakes] == ["an alias refers to itself"]


def test_unknown_tags_are_mistakes(tmp_path: Path) -> None:
    _, mistakes = read(tmp_path, "a: !python/object/apply:os.system [ls]\n")
    assert len(mistakes) == 1 and "unsupported tag" in mistakes[0][1]


def test_the_environment_is_put_in(tmp_path: Path) -> None:
    text = 'a: "${HOST}:9876"\nb: ${PORT:-10}\nc: "$${HOST}"\nd: ${EMPTY:-x}\n'
    value, mistakes = read(tmp_path, text, HOST="h", EMPTY="")
    assert mistakes == []
    assert value.plain() == {"a": "h:9876", "b": 10, "c": "${HOST}", "d": "x"}


def test_a_variable_that_is_not_set_is_a_mistake(tmp_path: Path) -> None:
    _, mistakes = read(tmp_path, "a: 1\nb: ${NOPE}\n")
    assert mistakes == [(2, "the environment variable NOPE is not set; set it, or use a default: ${NOPE:-…}")]


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("a: [1\nb: 2\n", 2, "not valid YAML"),
        ("a:\n\t- b\n", 2, "not valid YAML"),
        ("- a\n- b\n", 1, "a pipeline must be a mapping with sources and sinks; this is a list"),
        ("", 1, "this is empty"),
        (b"a: 1\nb: \xff\n", 2, "not valid UTF-8"),
        ("a: 1\n---\nb: 2\n", 2, "not valid YAML"),
    ],
)
def test_what_is_no_document_is_refused(tmp_path: Path, text: str | bytes, line: int, words: str) -> None:
    error = refused(tmp_path, text)
    assert [at for at, _ in error.mistakes] == [line]
    assert words in str(error) and str(error).startswith(f"p.yaml:{line}: ")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(PipelineFileError, match="^nope: cannot read it: No such file"):
        read_document(tmp_path / "nope", {}, Mistakes("nope"))


def test_a_large_file_is_refused(tmp_path: Path) -> None:
    assert "is not a pipeline" in str(refused(tmp_path, "a: " + "x" * (1 << 20)))


def test_mistakes_are_sorted_and_reported_once() -> None:
    mistakes = Mistakes("f")
    mistakes.add(9, "b")
    mistakes.add(2, "a")
    mistakes.add(9, "b")
    with pytest.raises(PipelineFileError) as caught:
        mistakes.finish()
    assert str(caught.value) == "f:2: a\nf:9: b"


def test_the_nearest_name() -> None:
    assert nearest("ordres", ["customers", "orders"]) == "did you mean orders?"
    assert nearest("xyz", ["customers", "orders"]) == "there are customers, orders"
    assert nearest("xyz", []) == "there are none"
    many = [f"topic-{number}" for number in range(1_000)]
    assert nearest("xyz", many).endswith(", topic-49 and 950 more")
