"""The HTTP server: sockets, connections, access to paths, request bodies and health."""
