"""What a replica knows of everything around a request: owners, namespaces, policies.

Fed by watches on every replica, so a review rarely has to ask the API server; what is not known yet
is read through, within the review's own deadline.
"""
