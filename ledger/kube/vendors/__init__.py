"""The resource names of GPU vendors, and which of them a scheduler leaves to the extender."""
