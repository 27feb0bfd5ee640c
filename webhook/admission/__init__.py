"""Admission: the decision about a request, one file for each type of object.

`webhook.admission.validating_webhook` selects the file for a review.
"""
