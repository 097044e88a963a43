"""Runs side by side: a comparison for the terminal, and one self-contained HTML page."""
