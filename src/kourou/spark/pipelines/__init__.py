"""Jobs built on the connector: declared pipelines, archive, replay, SQL over topics, statistics.

Nothing is loaded by importing this package: PySpark and what pipelines need besides it cost seconds.
"""
