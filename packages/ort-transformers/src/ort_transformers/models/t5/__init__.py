"""T5 and mT5: an encoder that makes the caches of cross attention, and a decoder of one token at a time."""
