"""Codecs of HAMi's annotations on nodes and pods."""
