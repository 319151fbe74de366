"""Matrix products in all types, and mixtures of experts."""
