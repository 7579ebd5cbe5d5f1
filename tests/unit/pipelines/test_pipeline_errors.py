"""Errors of Spark in one paragraph: texts are those that Spark 4.3 gives, shortened in their stacks."""

from __future__ import annotations

import pytest

from kourou.errors import ConfigError, KourouError
from kourou.spark.pipelines.pipeline_errors import PipelineError, short_reason

NOT_FOUND = (
    "[TABLE_OR_VIEW_NOT_FOUND] The table or view `ordres` cannot be found. Verify the spelling. "
    "SQLSTATE: 42P01; line 1 pos 14;\n'Project [*]\n+- 'UnresolvedRelation [ordres], [], false\n"
)
SYNTAX = (
    "\n[PARSE_SYNTAX_ERROR] Syntax error at or near 'ordres': extra input 'ordres'. "
    "SQLSTATE: 42601 (line 1, pos 14)\n\n== SQL ==\nSELECT * FORM ordres\n--------------^^^\n"
)
CAST = (
    "[CAST_INVALID_INPUT] The value 'x' cannot be cast. SQLSTATE: 22018\n== SQL (line 1, position 8) ==\n"
    "SELECT cast('x' as int) FROM orders\n"
)
SORT = (
    "Sorting is not supported on streaming DataFrames/Datasets, unless it is on aggregated "
    "DataFrame/Dataset in Complete output mode;\n~Sort [tags#190 ASC NULLS FIRST], true\n+- ~Relation\n"
)
PLANNING = (
    "[PYTHON_DATA_SOURCE_ERROR] Failed to generate Python data source read partitions: "
    "kourou.errors.NoRouteError: no route to topic 'nope': the name server does not know it\n SQLSTATE: 38000"
)
STREAM_PLANNING = (
    "[STREAM_FAILED] Query [id = 0a7fd353, runId = cbe5182c] terminated with exception: "
    "[PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] Failed when Python streaming data source perform "
    "prepareForTriggerAvailableNow: kourou.errors.NoRouteError: no route to topic 'nope': the name server "
    "does not know it\n SQLSTATE: 38000 SQLSTATE: XXKST\n=== Streaming Query ===\nIdentifier: [id = 0a]\n"
)
FOREACH_BATCH = (
    "[STREAM_FAILED] Query [id = 8a87, runId = e52e] terminated with exception: "
    "[FOREACH_BATCH_USER_FUNCTION_ERROR] An error occurred in the user provided function. Reason: "
    "Traceback (most recent call last):\n"
    '  File "utils.py", line 163, in call\n    self.func(DataFrame(jdf), batch_id)\n'
    '  File "job.py", line 47, in fb\n    raise RuntimeError("in foreachBatch")\n'
    "    ^^^^^^^^^^^^^^^^^^\nRuntimeError: in foreachBatch\n SQLSTATE: 39000 SQLSTATE: XXKST\n"
    "=== Streaming Query ===\nCurrent State: ACTIVE"
)
WORKER = (
    "Job aborted due to stage failure: Task 0 in stage 3.0 failed 1 times, most recent failure: Lost task "
    "0.0 in stage 3.0 (TID 2) (localhost executor driver): org.apache.spark.api.python.PythonException: "
    'Traceback (most recent call last):\n  File "source.py", line 113, in _read\n    yield read(options)\n'
    "kourou.errors.ConfigError: topic 'orders', offset 0: the property 'KEYS' is 'k0', not a valid int32\n\n"
    "\tat org.apache.spark.api.python.BasePythonRunner(PythonRunner.scala:581)\n\nDriver stacktrace:\n"
)
CHAINED = (
    'Traceback (most recent call last):\n  File "a.py", line 1, in f\n    g()\nKeyError: 1\n\nDuring '
    "handling of the above exception, another exception occurred:\n\nTraceback (most recent call last):\n"
    '  File "a.py", line 3, in f\n    h()\nmy.module.BadOrderError: order 7 has no customer\nsee the manual\n'
)
JAVA = "java.lang.IllegalStateException: java.io.IOException: No space left on device\n\tat java.io.File(X)\n"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (NOT_FOUND, "The table or view `ordres` cannot be found. Verify the spelling (line 1, pos 14)"),
        (SYNTAX, "Syntax error at or near 'ordres': extra input 'ordres'. (line 1, pos 14)"),
        (CAST, "The value 'x' cannot be cast."),
        (
            SORT,
            "Sorting is not supported on streaming DataFrames/Datasets, unless it is on aggregated "
            "DataFrame/Dataset in Complete output mode",
        ),
        (PLANNING, "no route to topic 'nope': the name server does not know it"),
        (STREAM_PLANNING, "no route to topic 'nope': the name server does not know it"),
        (FOREACH_BATCH, "RuntimeError: in foreachBatch"),
        (WORKER, "topic 'orders', offset 0: the property 'KEYS' is 'k0', not a valid int32"),
        (CHAINED, "BadOrderError: order 7 has no customer\nsee the manual"),
        (JAVA, "No space left on device"),
        ("", "Spark gave no reason"),
    ],
)
def test_a_reason_has_the_words_and_no_stack(text: str, reason: str) -> None:
    assert short_reason(text) == reason


def test_an_error_without_words_has_its_name() -> None:
    assert short_reason(RuntimeError()) == "RuntimeError"


def test_our_own_errors_stay_whole() -> None:
    assert short_reason(ConfigError("one", "two")) == "one\ntwo"


def test_a_reason_has_an_end() -> None:
    assert len(short_reason("x" * 100_000)) < 3_000


def test_a_pipeline_error_is_one_of_ours() -> None:
    assert issubclass(PipelineError, KourouError)
