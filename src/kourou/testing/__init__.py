"""For tests: clocks, certificates, frames. Nothing else in the package imports it."""
