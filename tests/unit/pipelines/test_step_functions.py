"""Python steps: what their source shows before Spark starts, and what their import shows after."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.needed import need_module

need_module("yaml")
need_module("pyarrow")

from kourou.spark.pipelines.check.checking import load_pipeline  # noqa: E402
from kourou.spark.pipelines.check.document import PipelineFileError  # noqa: E402
from kourou.spark.pipelines.check.spec import PipelineSpec  # noqa: E402
from kourou.spark.pipelines.step_functions import import_steps  # noqa: E402

MODULE = "checked_steps"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    return tmp_path


def load(folder: Path, source: str, *, function: str = "f", given: str = "") -> PipelineSpec:
    (folder / f"{MODULE}.py").write_text(source)
    file = folder / "p.yaml"
    file.write_text(
        "namesrv: n:1\nsources: {orders: {topic: orders}}\ncheckpoint: state\nsinks: [{console: true}]\n"
        f"steps:\n  - {{name: a, sql: SELECT 1}}\n  - {{name: b, python: '{MODULE}:{function}'{given}}}\n"
    )
    return load_pipeline(file, {})


def test_a_module_that_needs_a_session_is_not_imported_before_there_is_one(folder: Path) -> None:
    spec = load(folder, "raise RuntimeError('there is no session')\ndef f(frame): return frame\n")
    assert MODULE not in sys.modules
    with pytest.raises(PipelineFileError) as caught:
        import_steps(spec)
    words = f"step b: python: {MODULE} cannot be imported: RuntimeError: there is no session"
    assert caught.value.mistakes == [(7, words)]


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("def ff(frame): pass\n", f"{MODULE} has no f; did you mean ff?"),
        ("def f(): pass\n", f"{MODULE}:f(): must take (frame) or (spark, frames)"),
        ("def f(a, b, c): pass\n", f"{MODULE}:f(a, b, c): must take (frame) or (spark, frames)"),
        ("def f(a, *, key): pass\n", f"{MODULE}:f(a, *, key): must take (frame)"),
        ("f = 5\n", f"{MODULE}:f is not a function"),
        ("def f(frame)\n", f"{MODULE} cannot be imported: SyntaxError: "),
        ("import no_such.part\ndef f(frame): pass\n", "ModuleNotFoundError: No module named 'no_such'"),
        ("from no_such import x\ndef f(frame): pass\n", "ModuleNotFoundError: No module named 'no_such'"),
    ],
)
def test_what_the_source_shows_is_a_mistake_of_the_file(folder: Path, source: str, words: str) -> None:
    with pytest.raises(PipelineFileError) as caught:
        load(folder, source)
    ((line, what),) = caught.value.mistakes
    assert line == 7 and words in what and MODULE not in sys.modules


@pytest.mark.parametrize(
    "source",
    [
        "from os.path import *\n",
        "def __getattr__(name): raise AttributeError(name)\n",
        "try:\n    import no_such as f\nexcept ImportError:\n    f = None\n",
        "import sys\nsys.path.append('lib')\nimport no_such\ndef f(frame): pass\n",
        "import functools\nf = functools.partial(print, end='')\n",
        "@property\ndef f(): pass\n",
        "def f(): pass\ndef f(frame): pass\n",
        "def f(frame, more=1, *others, key=None): pass\n",
        "class Steps:\n    f = 1\nf = Steps\n",
        "with open(__file__) as f: pass\n",
    ],
)
def test_what_only_the_import_can_show_is_left_to_it(folder: Path, source: str) -> None:
    load(folder, source)


@pytest.mark.parametrize(
    ("source", "given", "inputs", "takes_session"),
    [
        ("def f(frame): pass\n", "", ("a",), False),
        ("def f(spark, frames): pass\n", "", ("orders", "a"), True),
        ("def f(frame): pass\n", ", input: orders", ("orders",), False),
    ],
)
def test_a_function_is_called_by_what_it_takes(
    folder: Path, source: str, given: str, inputs: tuple[str, ...], takes_session: bool
) -> None:
    call = import_steps(load(folder, source, given=given))["b"]
    assert (call.inputs, call.takes_session) == (inputs, takes_session)


@pytest.mark.parametrize(
    ("source", "given", "words"),
    [
        ("import sys\nsys.exit(3)\ndef f(frame): pass\n", "", "cannot be imported: SystemExit: 3"),
        ("from os.path import *\n", "", f"{MODULE} has no f; "),
        ("f = [1]\n", "", f"{MODULE}:f is not a function"),
        ("f = lambda: 1\n", "", f"{MODULE}:f(): must take (frame) or (spark, frames)"),
        ("def f(frame): pass\n", ", input: [orders, a]", "takes one frame, but its input names 2"),
    ],
)
def test_what_the_import_shows_is_a_mistake_of_the_file(
    folder: Path, source: str, given: str, words: str
) -> None:
    spec = load(folder, source, given=given)
    with pytest.raises(PipelineFileError, match="p.yaml:7: step b: python: ") as caught:
        import_steps(spec)
    assert words in str(caught.value)


def test_a_package_is_not_run_by_the_check(folder: Path) -> None:
    (folder / "checked_package").mkdir()
    (folder / "checked_package" / "__init__.py").write_text("raise RuntimeError('it ran')\n")
    (folder / "checked_package" / "steps.py").write_text("def f(frame): return frame\n")
    text = "namesrv: n:1\nsources: {orders: {topic: orders}}\ncheckpoint: state\nsinks: [{console: true}]\n"
    (folder / "p.yaml").write_text(f"{text}steps: [{{name: b, python: 'checked_package.steps:f'}}]\n")
    assert "checked_package" not in sys.modules and load_pipeline(folder / "p.yaml", {}).steps
    (folder / "p.yaml").write_text(f"{text}steps: [{{name: b, python: 'checked_package.nope:f'}}]\n")
    with pytest.raises(PipelineFileError, match=r"No module named 'checked_package\.nope'"):
        load_pipeline(folder / "p.yaml", {})
