"""Fourier transforms and mel filters."""
