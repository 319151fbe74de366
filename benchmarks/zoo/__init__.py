"""A zoo of architectures from seeded random configurations that nobody tuned on."""
