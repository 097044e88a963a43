"""What a step costs: in seconds, in passes through the network, and against what the maths needs at least."""
