"""What runs of a model on samples show: who runs them, and what ranges follow."""
