"""Where data lives at run time: values, devices, streams, allocation and exchange."""
