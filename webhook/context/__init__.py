"""The context of a request: owners, namespaces and policies, cached on every replica.

Watches feed the caches, so a review rarely has to ask the API server. An object that is not cached
yet is read within the review's own deadline.
"""
