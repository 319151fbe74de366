"""Model packages: folders with variants of models for different providers, as onnxruntime 1.32 reads and writes them.

``manifest.json`` names components, each with ``component.json`` in a folder of its own or inline; a component has
variants, each with a provider, a folder, and what an engine is to load from it.
"""
