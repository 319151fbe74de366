"""CUDAExecutionProvider for ort-core. Nothing is loaded before the plugin is asked."""
