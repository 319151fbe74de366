"""Who runs what: claims made convex, assigned by policy, and reported."""
