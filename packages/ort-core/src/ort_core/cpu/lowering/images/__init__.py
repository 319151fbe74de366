"""Images: layouts, bands, concatenations of channels, pooling, groups of channels."""
