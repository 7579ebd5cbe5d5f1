"""Names of tables in SQL, found without Spark."""

from __future__ import annotations

import pytest

from kourou.spark.pipelines.sql.sql_names import table_names


@pytest.mark.parametrize(
    ("sql", "names"),
    [
        ("SELECT * FROM orders", ["orders"]),
        ("SELECT * FROM orders o JOIN customers AS c ON o.id = c.id", ["orders", "customers"]),
        ("select 1 from a, b where x in (select y from c)", ["a", "b", "c"]),
        ("SELECT extract(day FROM at), trim(BOTH 'x' FROM y) FROM orders", ["orders"]),
        ("SELECT a IS NOT DISTINCT FROM b FROM t", ["t"]),
        ("WITH x AS (SELECT * FROM t), y (a, b) AS (SELECT 1, 2) SELECT * FROM x JOIN y", ["t"]),
        ("SELECT 'FROM nowhere' FROM t -- FROM other\n/* JOIN more */", ["t"]),
        ("SELECT * FROM `odd name`", ["odd name"]),
        ("SELECT * FROM parquet.`folder` JOIN range(5)", []),
        ("SELECT * FROM (SELECT * FROM inner_one) LEFT JOIN LATERAL explode(x)", ["inner_one"]),
        ("SELECT window.start, count(*) FROM o GROUP BY window(at, '1 minute'), k", ["o"]),
        ("SELECT * FROM a ORDER BY x, y", ["a"]),
        ("", []),
    ],
)
def test_tables(sql: str, names: list[str]) -> None:
    assert table_names(sql) == names
