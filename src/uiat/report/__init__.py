"""Figures, result files and the HTML report; matplotlib is imported only when a figure is drawn."""
