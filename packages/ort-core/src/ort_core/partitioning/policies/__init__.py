"""Policies of placement: how the choice among providers that could run the same nodes is made."""
