"""From weights to a folder that runs: architectures, graphs, precisions, tokenizers."""
