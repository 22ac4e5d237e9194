"""Rows of the table of benchmarks; each module registers its own."""
