"""The suites: each module holds one, and gives its checks."""
