"""The policy of change: passes over a whole model, their order, and how they are run and checked."""
