"""Measurements: each module is a script with a `main()`, run as `python -m benchmarks.<module>`."""
