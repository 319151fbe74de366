"""The CPU execution provider: it enters through the plugin door like any vendor's."""
