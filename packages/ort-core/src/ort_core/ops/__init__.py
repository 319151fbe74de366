"""What operators mean: schemas, shape and type inference, decompositions; nothing about how they run."""
