"""The template of a provider package, and how it is written out under a vendor's names."""
