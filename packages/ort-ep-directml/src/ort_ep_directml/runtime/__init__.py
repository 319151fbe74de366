"""Running graphs of DirectML: a device, its memory, compiled graphs, and recorded commands."""
