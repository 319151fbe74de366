"""Running: compile partitions into an execution plan, and run it with a state of its own per run."""
