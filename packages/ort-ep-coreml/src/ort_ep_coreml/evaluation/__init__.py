"""Values of Core ML programs without Core ML: coremltools' own value inference, and numpy where it has none."""
