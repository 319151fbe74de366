"""NVIDIA's libraries as engines of library steps: what they accept, their candidates, and which of those is fastest."""
