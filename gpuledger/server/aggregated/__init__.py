"""Aggregated API: the read API below the API server's `/apis`, for its authenticated users."""
