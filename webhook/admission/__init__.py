"""Admission: the decision about a request, one file for each family of objects.

`webhook.admission.validating_webhook` decides which of them a review belongs to.
"""
