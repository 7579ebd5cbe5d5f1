"""Jobs built on the connector: declared pipelines, archive, replay, SQL over topics, statistics.

Importing this package loads nothing: PySpark and the other packages take seconds.
"""
