"""Short commands for daily work, beside `mqadmin`: topic, group, send, tail, context, completion.

Each parses its options, calls `kourou.admin`, and prints. Unlike `mqadmin` they do not follow the output of
Apache's tools. docs/commands.md describes them.
"""
