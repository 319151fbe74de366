"""The plugin authors' door: everything that an execution provider may import."""
