"""Convolutions in channels-last layout."""
