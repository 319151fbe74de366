"""DirectML as an execution provider of ort-core. Nothing is loaded before the plugin is asked."""

__version__ = "0.1.0"
