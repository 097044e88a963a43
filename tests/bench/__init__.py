"""The benchmark: what it counts, times and says."""
