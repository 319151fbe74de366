"""Guarded runs of native programs: each buffer against a page that cannot be touched, unwritten memory made to show."""
