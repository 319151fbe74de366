"""What operators mean: schemas, the registry, shape and type inference, value ranges, decompositions."""
