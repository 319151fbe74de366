"""What pooling, resizing and normalization of channels-last images become."""
