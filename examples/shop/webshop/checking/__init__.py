"""Whether the shop kept its promises: checks over the tables of all services."""
