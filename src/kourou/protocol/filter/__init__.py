"""SQL92 filters: which messages a consumer wants, by their properties.

`compile_filter(text)` gives a FilterProgram, or raises FilterSyntaxError with the place and a hint.

    text  --tokens.py-->  tokens  --parser.py-->  expression  --compiler.py-->  program

The language is RocketMQ's: comparison, BETWEEN, IN, IS NULL, CONTAINS, STARTSWITH, ENDSWITH, AND, OR,
NOT. It has no LIKE, no arithmetic and no functions. Results are those of Apache's evaluator, oddities
included; where ours are stricter is said in parser.py.
"""

from kourou.protocol.filter.program import FilterProgram
from kourou.protocol.filter.program_cache import compile_filter

__all__ = ["FilterProgram", "compile_filter"]
