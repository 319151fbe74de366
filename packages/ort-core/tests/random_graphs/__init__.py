"""Random graphs: a generator, the judges of what engines make of its graphs, a minimiser, and the campaign."""
