"""Queries of commands: a port with two implementations, on a store and on a service by HTTP.

A service is reached by its URL with a token, or through the API server that a kubeconfig names.
"""
