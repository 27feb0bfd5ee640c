"""HTTP routes and metrics of the projection."""
