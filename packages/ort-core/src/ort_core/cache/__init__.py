"""The content-addressed artefact cache: typed keys, atomic writes, checked digests."""
