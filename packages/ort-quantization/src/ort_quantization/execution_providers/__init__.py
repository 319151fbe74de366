"""Preparation of models for single execution providers."""
