"""Results compared: with another run, or with expected outputs; and the part of a model that differs."""
