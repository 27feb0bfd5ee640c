"""The AdmissionReview format."""
