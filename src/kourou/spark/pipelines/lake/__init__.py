"""Lakes: Parquet, Delta and Iceberg."""
