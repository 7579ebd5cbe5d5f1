"""The steps of a pipeline: each makes a DataFrame of those before it, and a view under its own name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kourou.spark.pipelines.pipeline_errors import PipelineError, plain_reason
from kourou.spark.pipelines.sources import marked
from kourou.spark.pipelines.spec import PythonStep, SqlStep, StepSpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def run_step(spark: SparkSession, step: StepSpec, frames: dict[str, DataFrame]) -> DataFrame:
    """What a step makes; its name in `frames` and the view are the caller's to give."""
    frame = spark.sql(step.sql) if isinstance(step, SqlStep) else _call(spark, step, frames)
    return marked(frame, step.watermark)


def _call(spark: SparkSession, step: PythonStep, frames: dict[str, DataFrame]) -> DataFrame:
    from pyspark.sql import DataFrame

    given = {name: frames[name] for name in step.inputs}
    try:
        if step.takes_session:
            frame = step.function(spark, given)
        else:
            frame = step.function(given[step.inputs[0]])
    except Exception as error:
        raise PipelineError(f"{step.path} raised {type(error).__name__}: {plain_reason(error)}") from error
    if not isinstance(frame, DataFrame):
        raise PipelineError(f"{step.path} gave {type(frame).__name__}, and has to give a DataFrame")
    return frame
