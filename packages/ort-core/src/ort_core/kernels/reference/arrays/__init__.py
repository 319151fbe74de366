"""What kernels do to arrays on the way in and out: axes, windows, broadcasting, wider types, rounding, packed bits."""
