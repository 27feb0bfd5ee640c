"""The gRPC server of the device plugin and its registration."""
