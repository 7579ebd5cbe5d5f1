"""Operations on a cluster: each a typed function that returns data.

    async with Admin(namesrv="127.0.0.1:9876") as admin:
        for queue in (await topic_status(admin, "Orders")).queues:
            print(queue.broker_name, queue.queue_id, queue.max_offset)

Works with Kourou's and Apache's name servers and brokers. Nothing is printed here, but in `kourou.cli.admin`.
Results hold no dictionary with keys other than text, so that each can be written as JSON.
"""

from kourou.admin.session import Admin, BrokerAddress

__all__ = ["Admin", "BrokerAddress"]
