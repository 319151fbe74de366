"""The writer of CUDA C++, and the kernels over elements and rows that most operators become."""
