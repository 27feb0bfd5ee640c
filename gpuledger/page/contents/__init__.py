"""Contents: the computed parts of pages, such as charts and estimates, ready for templates."""
