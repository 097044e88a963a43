"""The training engine: loop, step, state, weight averaging, AWP, guards and signals."""
