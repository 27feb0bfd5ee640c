"""The resource names of GPU vendors, built in or from a file."""
