"""The plugin specification: what an execution provider is, says and returns, and how it is found."""
