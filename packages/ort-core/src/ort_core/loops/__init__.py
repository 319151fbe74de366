"""Target-neutral fused loop nests: each elementwise and reduction operator's scalar meaning, once."""
