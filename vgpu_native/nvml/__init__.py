"""NVML: the port, the driver's library, and threads for calls that may hang."""
