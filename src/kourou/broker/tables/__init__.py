"""Tables kept in config/: topics, subscription groups and consumer offsets, with their processors."""
