"""A model over many rows of a file, a part at a time, to be taken up again where it was ended."""
