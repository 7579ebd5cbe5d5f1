"""The message store: RocketMQ's files, and what survives a crash of them.

Plain synchronous code: no event loop, no clock of its own, and no contact with the operating
system except through `files.py`, so that tests can put a faulty disk under the real store.
Not here: requests and answers (broker), bytes of a single record (protocol).
"""
