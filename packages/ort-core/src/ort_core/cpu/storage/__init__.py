"""Programs and partitions as bytes: what caches and compiled models keep, and what recalls them."""
