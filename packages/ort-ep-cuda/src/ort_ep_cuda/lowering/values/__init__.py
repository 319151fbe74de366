"""What a value is while a program is lowered: views, lazy tensors, sizes and constants."""
