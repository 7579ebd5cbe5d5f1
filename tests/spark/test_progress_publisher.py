"""A stream's progress in the topic for the console."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kourou.admin.pipelines import PipelineItem, pipelines
from kourou.admin.session import Admin
from kourou.testing import LocalCluster
from tests.spark.kit.driver_process import wait_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_batches_and_the_end_of_a_stream_are_published(spark: SparkSession, tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    from kourou.spark import ProgressPublisher
    from tests.spark.kit.source_kit import send

    with LocalCluster() as mq:
        mq.create_topic("published", queues=1)
        send(mq, "published", [b"%d" % number for number in range(5)])
        publisher = ProgressPublisher(mq.namesrv, application="test")
        spark.streams.addListener(publisher)
        try:
            frame = spark.readStream.format("rocketmq").options(
                namesrv=mq.namesrv, subscribe="published", startingOffsets="earliest"
            )
            query = (
                frame.load()
                .writeStream.format("noop")
                .queryName("shop")
                .option("checkpointLocation", str(tmp_path / "checkpoint"))
                .start()
            )
            try:
                wait_for(lambda: any(one.status.batch_id is not None for one in read(mq)), "a batch", 0.1)
            finally:
                query.stop()
            (item,) = read(mq)
            assert (item.status.name, item.status.application) == ("shop", "test")
            assert item.status.topics == ["published"]
            wait_for(lambda: read(mq)[0].status.state == "stopped", "the end", 0.1)
        finally:
            spark.streams.removeListener(publisher)
            publisher.close()


def read(mq: LocalCluster) -> list[PipelineItem]:
    async def ask() -> list[PipelineItem]:
        async with Admin(namesrv=mq.namesrv) as admin:
            return await pipelines(admin)

    return asyncio.run(ask())
