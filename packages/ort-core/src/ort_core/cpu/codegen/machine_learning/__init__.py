"""Classical machine learning: trees, classifiers' scores, support vectors."""
