"""The engine: training loop, training step, state, weight averaging, AWP, guards and signals."""
