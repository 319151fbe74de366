"""Who runs what: claims asked for, checked and assigned by policy, and the report that explains it."""
