"""Random graphs: a generator, the judges of what engines make of its graphs, a minimizer, and the campaign."""
