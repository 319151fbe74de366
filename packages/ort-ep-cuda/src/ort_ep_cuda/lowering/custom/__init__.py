"""Users' operators: kernels in CUDA C++, formulas, and functions over CuPy's arrays."""
