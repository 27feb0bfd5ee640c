"""Access to the page: the viewer of a request, sessions and form tokens."""
