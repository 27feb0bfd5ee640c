"""Models of parts outside virtual time: an API server and HAMi, and the operations of a run."""
