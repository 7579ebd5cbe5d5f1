"""Why a pipeline's query failed, from what Spark 4.3 says of it: the cause, not the plan, with its step."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.needed import need_module

need_module("pyarrow")

from kourou.spark.pipelines.check.spec import PythonStep, SqlStep, StepSpec  # noqa: E402
from kourou.spark.pipelines.describe_failure import describe_failure  # noqa: E402

# What Spark appends: the plan has the check of values in it.
PLAN = (
    "\n=== Streaming Query ===\nIdentifier: orders/topic-out [id = dd5a, runId = a5f5]\nLogical Plan:\n"
    "WriteToMicroBatchDataSource rocketmq\n+- ~Generate inline(CASE WHEN isnull(x) THEN y ELSE raise_error("
    "USER_RAISED_EXCEPTION, map(errorMessage, format_string(kourou bad record: source orders: topic '%s', "
    "broker '%s': %s, coalesce(cast(__message_topic#9 as string), ?))))"
)
PROXY = (
    "An exception was raised by the Python Proxy. Return Message: Traceback (most recent call last):\n"
    '  File "/venv/pyspark/sql/utils.py", line 163, in call\n    self.func(DataFrame(jdf), batch_id)\n'
)
WORKER = (
    "Traceback (most recent call last):\n"
    '  File "{file}", line 4, in halved\n    return 1 / number\n           ~~^~~~~~~~\n'
    '  File "/elsewhere/helper.py", line 9, in divide\n    return a / b\n'
    "ZeroDivisionError: float division by zero\n"
)
ZERO = '[DIVIDE_BY_ZERO] Division by zero. Set "spark.sql.ansi.enabled" to "false". SQLSTATE: 22012\n'
ZERO_WORDS = 'Division by zero. Set "spark.sql.ansi.enabled" to "false".'
MODULE = """\
from pyspark.sql.functions import col, udf

def halved(number):
    return 1 / number

def first(frame):
    return frame.withColumn("q", udf(halved, "double")(col("n")))

def second(frame):
    return frame.where(1 / col("n") > 1)
"""
BAD = "source orders: topic 'orders', broker 'broker-a', queue 1, offset 7: the value is not a JSON object"


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The file of a module with two steps."""
    file = tmp_path / "failing_steps.py"
    file.write_text(MODULE.replace("from pyspark.sql.functions import col, udf\n", "\n"))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "failing_steps", raising=False)
    __import__("failing_steps")
    return str(file)


def python_step(name: str, function: str) -> PythonStep:
    return PythonStep(name, 8, f"failing_steps:{function}", 8, (), ("orders",))


@pytest.mark.parametrize(
    "text",
    [
        "[PYTHON_EXCEPTION] An exception was thrown from the Python worker: " + WORKER + " SQLSTATE: 38000",
        PROXY + "pyspark.errors.exceptions.captured.PythonException: An exception was thrown:\n" + WORKER,
    ],
    ids=["topic", "foreachBatch"],
)
def test_an_error_of_a_udf_is_not_a_bad_record_and_has_its_step(text: str, module: str) -> None:
    reported = describe_failure(text.format(file=module) + PLAN, [python_step("a", "first")])
    assert reported == "step a: ZeroDivisionError: float division by zero (failing_steps.py:4, in halved)"


def test_a_line_within_a_function_distinguishes_steps_of_one_module(module: str) -> None:
    steps = [python_step("a", "first"), python_step("b", "second")]
    text = f'{ZERO}== DataFrame ==\n"__rtruediv__" was called from\n{module}:10\n{PLAN}'
    assert describe_failure(text, steps) == f"step b: {ZERO_WORDS} (failing_steps.py:10)"
    reported = describe_failure(WORKER.format(file=module), steps)
    assert (
        reported == "step a or b: ZeroDivisionError: float division by zero (failing_steps.py:4, in halved)"
    )


@pytest.mark.parametrize("before", ["", PROXY + "pyspark.errors.exceptions.captured.ArithmeticException: "])
def test_an_error_of_sql_has_its_step(before: str) -> None:
    shown = "SELECT id,\n\n  1/(amount-amount) q\n  ^^^^^^^^^^^^^^^^^\nFROM orders\n"
    steps: list[StepSpec] = [
        SqlStep("a", 3, "SELECT id, 1/(amount-amount) q FROM orders"),
        SqlStep("b", 5, "SELECT id FROM a"),
    ]
    text = f"{before}{ZERO}== SQL (line 2, position 3) ==\n{shown}\n{PLAN}"
    assert describe_failure(text, steps) == f"step a: {ZERO_WORDS}"


def test_a_column_that_the_table_lacks_is_not_a_bad_record() -> None:
    ours = "kourou.spark.pipelines.pipeline_errors.PipelineError: table t has no column x; did you mean y?\n"
    assert describe_failure(f"{PROXY}{ours}{PLAN}") == "table t has no column x; did you mean y?"
    theirs = (
        "py4j.protocol.Py4JJavaError: An error occurred while calling o76.save.\n"
        ": org.postgresql.util.PSQLException: ERROR: column x does not exist\n\tat org.X(Y.java:1)\n"
    )
    assert describe_failure(f"{PROXY}{theirs}{PLAN}") == "ERROR: column x does not exist"


@pytest.mark.parametrize(
    "before",
    [
        "[STREAM_FAILED] Query [id = x] terminated with exception: ",
        PROXY + "pyspark.errors.exceptions.captured.SparkRuntimeException: ",
        "Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times, most recent failure: Lost "
        "task 0.0 in stage 1.0 (TID 1) (localhost executor driver): org.apache.spark.SparkRuntimeException: ",
    ],
    ids=["topic", "foreachBatch", "batch"],
)
@pytest.mark.parametrize(
    "value",
    [
        '{"kourou.x": 1, "kourou.errors.Y: \x01',
        'Traceback (most recent call last): File "a.py", line 1, in f',
    ],
    ids=["JSON", "traceback"],
)
def test_a_bad_record_is_reported_in_the_words_about_it(before: str, value: str) -> None:
    value = f"it begins with {value}"
    text = f"{before}[USER_RAISED_EXCEPTION] kourou bad record: {BAD}; {value} SQLSTATE: P0001\n\tat org.X(Y)"
    shown = value.replace("\x01", "\N{REPLACEMENT CHARACTER}")
    advice = "set badRecords to keep such records instead of failing"
    assert describe_failure(text + PLAN) == f"{BAD}; {shown}. {advice}"
