"""The steps of a pipeline: each makes a DataFrame of those before it, and a view under its own name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kourou.spark.pipelines.check.spec import SqlStep, StepSpec
from kourou.spark.pipelines.pipeline_errors import PipelineError, short_reason
from kourou.spark.pipelines.sources import marked
from kourou.spark.pipelines.step_functions import StepCall

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def run_step(
    spark: SparkSession, step: StepSpec, frames: Mapping[str, DataFrame], calls: Mapping[str, StepCall]
) -> DataFrame:
    """What a step makes; its name in `frames` and the view are the caller's to give. `calls` has the
    functions of Python steps."""
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
        raise PipelineError(f"{path} gave {type(frame).__name__}, and has to give a DataFrame")
    return frame
