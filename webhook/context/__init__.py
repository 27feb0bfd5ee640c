"""The context of a review: settings, and owners, namespaces and policies in caches.

Watches feed the caches of every replica, so a review rarely reads from the API server. An object
that is not cached yet is read within the deadline of the review.
"""
