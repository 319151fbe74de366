"""TemplateExecutionProvider: a provider of ort-core. Nothing is loaded before the plugin is asked."""
