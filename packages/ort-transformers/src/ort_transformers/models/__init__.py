"""Conversions of single architectures, over torch and transformers, which a conversion imports when it begins."""
