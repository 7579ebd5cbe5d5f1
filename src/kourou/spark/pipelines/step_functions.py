"""The steps of a pipeline: each makes a DataFrame from earlier ones, and a view under its own name.

A step's module may do things at import that need a session: `@udf`, `col(…)`, a schema in DDL, or create the
session itself, with other settings than the pipeline's. So modules are imported after the session has
started. What their source shows is checked before: the module exists, parses, finds its imports, and has a
function that takes (frame) or (spark, frames).
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, PathFinder
from typing import TYPE_CHECKING, Final

from kourou.spark.pipelines.check.document import PipelineFileError, nearest
from kourou.spark.pipelines.check.spec import PipelineSpec, PythonStep, SqlStep, StepFunction, StepSpec
from kourou.spark.pipelines.pipeline_errors import PipelineError, short_reason
from kourou.spark.pipelines.sources import marked

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SIGNATURE: Final = "must take (frame) or (spark, frames)"
_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)
_SCOPES: Final = (*_FUNCTIONS, ast.ClassDef, ast.Lambda)


@dataclass(frozen=True, slots=True)
class StepCall:
    """How to call a step: `function(spark, frames)` with `takes_session`, otherwise `function(frame)`."""

    function: StepFunction
    inputs: tuple[str, ...]
    takes_session: bool


class StepError(Exception):
    """A step's function is invalid."""


# -- before Spark starts ---------------------------------------------------------------------------


def check_step_source(step: PythonStep, folder: str) -> None:
    """StepError if the source of the step's module shows that it cannot run. `folder` is the pipeline's."""
    make_importable(folder)
    try:
        spec = _find(step.module)
        source = None if spec.origin is None or spec.loader is None else _source(spec)
        outline = None if source is None else ast.parse(source, str(spec.origin))
    except (ImportError, SyntaxError, ValueError) as error:
        raise _import_failed(step, error) from error
    if outline is None:
        return  # compiled or generated: only the import shows its content
    for name in _needed_packages(outline):
        if not _is_there(name):
            raise _import_failed(step, ModuleNotFoundError(f"No module named {name!r}"))
    _check_outline(step, outline)


def make_importable(folder: str) -> None:
    """Make modules beside the file importable, permanently, as a step may import more while it runs."""
    if folder not in sys.path:
        sys.path.insert(0, folder)
    importlib.invalidate_caches()


def _find(module: str) -> ModuleSpec:
    """The module's spec. Unlike importlib's find_spec, this does not import its parent packages."""
    first, *inner = module.split(".")
    spec = importlib.util.find_spec(first)
    name = first
    for part in inner:
        if spec is None or spec.submodule_search_locations is None:
            break
        name = f"{name}.{part}"
        spec = PathFinder.find_spec(name, list(spec.submodule_search_locations))
    if spec is None or spec.name != module:
        raise ModuleNotFoundError(f"No module named {name!r}")
    return spec


def _source(spec: ModuleSpec) -> str | None:
    get_source = getattr(spec.loader, "get_source", None)
    return None if get_source is None else get_source(spec.name)


def _needed_packages(outline: ast.Module) -> Iterator[str]:
    """The packages that the module always imports; imports within `try` or `if` may fail, and modules found
    after a change of `sys.path` are only known at import."""
    for statement in outline.body:
        if isinstance(statement, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in statement.names)
        elif isinstance(statement, ast.ImportFrom) and statement.module and not statement.level:
            yield statement.module.partition(".")[0]
        elif "sys.path" in ast.unparse(statement):
            return


def _is_there(package: str) -> bool:
    try:
        return package in sys.modules or importlib.util.find_spec(package) is not None
    except (ImportError, ValueError):
        return False


def _check_outline(step: PythonStep, outline: ast.Module) -> None:
    bound = list(_bindings(outline))
    names = {name for name, _ in bound}
    if step.function_name not in names:
        if "*" in names or "__getattr__" in names:
            return
        functions = [name for name, node in bound if isinstance(node, _FUNCTIONS)]
        raise _no_function(step, functions)
    nodes = [node for name, node in bound if name == step.function_name]
    node = nodes[-1]
    # Decorators, branches and second definitions are only resolved by the import.
    if len(nodes) > 1 or node not in outline.body:
        return
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
        raise StepError(f"{step.path} is not a function")
    if isinstance(node, _FUNCTIONS) and not node.decorator_list and not _may_fit(node.args):
        raise StepError(f"{step.path}({ast.unparse(node.args)}): {_SIGNATURE}")


def _bindings(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """The names that a module binds, each with its statement; `*` for those of another module."""
    for inner in ast.iter_child_nodes(node):
        if isinstance(inner, (*_FUNCTIONS, ast.ClassDef)):
            yield inner.name, inner
        elif isinstance(inner, ast.Import | ast.ImportFrom):
            for alias in inner.names:
                yield alias.asname or alias.name.partition(".")[0], inner
        elif isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
            yield inner.id, node
        if not isinstance(inner, _SCOPES):
            yield from _bindings(inner)


def _may_fit(arguments: ast.arguments) -> bool:
    """Whether a function can be called with one argument or two."""
    positional = [*arguments.posonlyargs, *arguments.args]
    required = len(positional) - len(arguments.defaults)
    most = 2 if arguments.vararg else len(positional)
    return required <= 2 and most >= 1 and None not in arguments.kw_defaults


# -- once it runs ----------------------------------------------------------------------------------


def import_steps(spec: PipelineSpec) -> dict[str, StepCall]:
    """The functions of a pipeline's Python steps, by step. PipelineFileError: what is wrong with each."""
    calls, mistakes = {}, []
    for step in spec.steps:
        if isinstance(step, PythonStep):
            try:
                calls[step.name] = _imported(step)
            except StepError as error:
                mistakes.append((step.path_line, f"step {step.name}: python: {error}"))
    if mistakes:
        raise PipelineFileError(str(spec.file), mistakes)
    return calls


def _imported(step: PythonStep) -> StepCall:
    try:
        module = importlib.import_module(step.module)
    # Any exception of a user's module is reported, together with the mistakes of other steps.
    except (Exception, SystemExit) as error:
        raise _import_failed(step, error) from error
    function = getattr(module, step.function_name, None)
    if function is None:
        raise _no_function(step, [name for name, value in vars(module).items() if inspect.isfunction(value)])
    if not callable(function):
        raise StepError(f"{step.path} is not a function")
    takes_session = _takes_session(step, function)
    inputs = step.inputs or tuple(step.before if takes_session else step.before[-1:])
    if not takes_session and len(inputs) != 1:
        raise StepError(f"{step.path} takes one frame, but its input names {len(inputs)}")
    return StepCall(function, inputs, takes_session)


def _takes_session(step: PythonStep, function: StepFunction) -> bool:
    signature = inspect.signature(function)
    for arguments, answer in (((None, None), True), ((None,), False)):
        try:
            signature.bind(*arguments)
        except TypeError:
            continue
        return answer
    raise StepError(f"{step.path}{signature}: {_SIGNATURE}")


def _import_failed(step: PythonStep, error: BaseException) -> StepError:
    return StepError(f"{step.module} cannot be imported: {type(error).__name__}: {error}")


def _no_function(step: PythonStep, functions: list[str]) -> StepError:
    return StepError(f"{step.module} has no {step.function_name}; {nearest(step.function_name, functions)}")


def run_step(
    spark: SparkSession, step: StepSpec, frames: Mapping[str, DataFrame], calls: Mapping[str, StepCall]
) -> DataFrame:
    """The DataFrame of a step; the caller registers its name and view. `calls` has the functions of Python
    steps."""
    if isinstance(step, SqlStep):
        frame = spark.sql(step.sql)
    else:
        frame = _called(spark, step.path, calls[step.name], frames)
    return marked(frame, step.watermark)


def _called(spark: SparkSession, path: str, call: StepCall, frames: Mapping[str, DataFrame]) -> DataFrame:
    from pyspark.sql import DataFrame

    given = {name: frames[name] for name in call.inputs}
    try:
        if call.takes_session:
            frame = call.function(spark, given)
        else:
            frame = call.function(given[call.inputs[0]])
    except Exception as error:
        raise PipelineError(f"{path} raised {type(error).__name__}: {short_reason(error)}") from error
    if not isinstance(frame, DataFrame):
        raise PipelineError(f"{path} returned {type(frame).__name__}, but must return a DataFrame")
    return frame
