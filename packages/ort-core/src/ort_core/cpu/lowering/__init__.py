"""From a group of nodes to a tensor program: buffers, views, and steps that call generated kernels."""
