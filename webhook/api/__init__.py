"""The AdmissionReview format and the settings of admission."""
