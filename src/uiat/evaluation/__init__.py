"""Evaluation: accuracy under attack, with intervals, and the result card."""
