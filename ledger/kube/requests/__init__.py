"""What pods request: device requests, amounts, traits and placement preferences."""
