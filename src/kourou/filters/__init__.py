"""Filters of your own: which messages a consumer gets, decided by Python code that the operator installs.

A filter is made by a factory from the parameters of a subscription, and judges records in batches:

    class Prefix:
        def __init__(self, parameters: str) -> None:
            self.prefix = parameters.encode()

        def matches(self, records: Sequence[FilterRecord]) -> Sequence[bool]:
            return [bytes(record.body[: len(self.prefix)]) == self.prefix for record in records]

The factory, here the class, raises ValueError for parameters that it does not understand: the consumer gets
its words. It is installed with the package that has it, by an entry point in the group `kourou.filters`:

    [project.entry-points."kourou.filters"]
    prefix = "my_filters:Prefix"

Consumers subscribe with expression type PLUGIN and the expression `prefix order-`. The code runs in a process
of its own, with limits of time and memory (docs/filters.md).
"""

from kourou.filters.record import FilterFactory, FilterRecord, RecordFilter

__all__ = ["FilterFactory", "FilterRecord", "RecordFilter"]
