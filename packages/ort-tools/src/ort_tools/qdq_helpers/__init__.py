"""Helpers for models with QuantizeLinear and DequantizeLinear."""
