"""Build the images that `deploy/Dockerfile` describes."""
