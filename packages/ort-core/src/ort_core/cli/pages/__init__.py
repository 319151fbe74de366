"""What pages are made of: markup, style and script, read as text."""
