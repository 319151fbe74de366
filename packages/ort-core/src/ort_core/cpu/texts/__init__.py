"""Text pipelines as native calls."""
