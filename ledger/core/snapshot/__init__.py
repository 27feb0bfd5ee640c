"""Snapshot layouts: the columns that are written now, and the reader of the older schema 3."""
