"""Codecs of HAMi annotations on nodes and pods."""
