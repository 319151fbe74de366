"""Which requests run when, and together with which others."""
