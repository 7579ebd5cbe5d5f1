"""Operations on a cluster: typed functions that return data.

    async with Admin(namesrv="127.0.0.1:9876") as admin:
        for queue in (await topic_status(admin, "Orders")).queues:
            print(queue.broker_name, queue.queue_id, queue.max_offset)

Works with Kourou's and Apache's name servers and brokers. Printing is in `kourou.cli.admin`. Dictionaries in
results have text keys only, so that every result can be written as JSON.
"""

from kourou.admin.session import Admin, BrokerAddress

__all__ = ["Admin", "BrokerAddress"]
