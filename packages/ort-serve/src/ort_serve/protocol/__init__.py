"""The Open Inference Protocol's types, apart from HTTP and gRPC."""
