"""The engine: loop, step, schedule, checkpoints, and the run folder."""
