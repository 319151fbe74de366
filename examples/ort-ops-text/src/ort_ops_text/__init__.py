"""Operators on text for ort-core: installing the package is enough, every session knows them."""
