"""Many requests at once on one model: batches that requests join and leave, shared prefixes, cancelling."""
