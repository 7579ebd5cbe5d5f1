"""`python manage.py consume_orders`: bills orders until it is stopped."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandParser
from django.db import close_old_connections

from kourou import MessageExt
from shop.consuming import consume, with_fresh_connections
from shop.models import Bill

TOPIC = "SiteOrders"


class Command(BaseCommand):
    """One process of the consumer group; start as many as are needed."""

    help = "Consume orders until Ctrl-C or SIGTERM"

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the option for the number of concurrent handlers, each with a database connection."""
        parser.add_argument("--concurrency", type=int, default=4)

    def handle(self, *args: Any, **options: Any) -> None:
        """Run the consumer in this thread."""
        handler = with_fresh_connections(self.bill, close_old_connections)
        consume(settings.ROCKETMQ_NAMESRV, TOPIC, handler, concurrency=options["concurrency"])

    def bill(self, message: MessageExt) -> None:
        """Handle one order; if it raises, the message is delivered again."""
        _, is_new = Bill.objects.get_or_create(order_id=message.keys[0])
        self.stdout.write(f"{message.keys[0]} {'billed' if is_new else 'was billed before'}")
