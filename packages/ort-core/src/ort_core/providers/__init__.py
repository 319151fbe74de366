"""The plugin specification: hooks, execution providers, claims, compiled partitions."""
