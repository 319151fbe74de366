"""Models on disk, their settings, and the versions that serve."""
