"""Serving of the pages: headers, forms and static files."""
