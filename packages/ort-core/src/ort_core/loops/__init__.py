"""Target-neutral fused loop nests: what elementwise and reduction operators compute, written once for every printer."""
