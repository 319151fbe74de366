"""The CPU execution provider: found through an entry point, written against ``ort_core.plugin`` alone."""
