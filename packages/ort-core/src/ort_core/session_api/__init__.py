"""The parts of the session's API, each a file: what a session shows, binds, changes and returns."""
