"""Custom operators: schema, shape rule and kernels in one place."""
