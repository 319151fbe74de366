"""The CPU execution provider, found through ort-core's own entry point and written against ``ort_core.plugin`` alone."""
