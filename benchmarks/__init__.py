"""Benchmarks of the real product, one JSON object a line: `make bench`, or `python -m benchmarks NAME`."""
