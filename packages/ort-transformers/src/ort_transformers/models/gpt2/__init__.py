"""GPT-2: a decoder whose caches are inputs and outputs, one tensor for each layer."""
