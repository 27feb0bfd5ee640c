"""The parts of the check: each measures one thing, and compares it with an expected range."""
