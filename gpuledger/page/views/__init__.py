"""Views of the page: one file for each, from a `PageRequest` to a struct for its template."""
