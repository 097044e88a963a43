"""Reproduction of the paper's tables, figures and claims at one of the scales `smoke`, `cpu` and `paper`."""
