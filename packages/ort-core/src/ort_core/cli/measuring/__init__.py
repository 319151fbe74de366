"""Times of runs: in turns with another engine, and beside what the machine could do."""
