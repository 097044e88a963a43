"""Comparison of runs: a table for the terminal, and a self-contained HTML report."""
