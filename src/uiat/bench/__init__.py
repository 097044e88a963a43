"""Cost of a training step: seconds, passes through the network, and memory."""
