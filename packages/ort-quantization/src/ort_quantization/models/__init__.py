"""Models as messages and files: read, prepared, put in order, and written."""
