"""What commands say of the machine and its providers."""
