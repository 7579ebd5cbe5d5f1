"""ConsumeQueue: units, files, recovery, verification."""
