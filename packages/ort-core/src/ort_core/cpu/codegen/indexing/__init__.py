"""Access by indices that are data: gather, scatter, top k, non-maximum suppression."""
