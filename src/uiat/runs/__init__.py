"""A run on the disk: its folder, checkpoints, weights, the identity of its data, and its card."""
