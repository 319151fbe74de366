"""The page that a browser shows."""
