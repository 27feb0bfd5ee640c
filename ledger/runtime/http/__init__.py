"""The HTTP server: sockets, guards, authorization, request bodies and health."""
