"""Convolutions, poolings, resizing and regions of images."""
