"""Images in channels-last layout: what all their kernels share, layouts, pooling, resampling."""
