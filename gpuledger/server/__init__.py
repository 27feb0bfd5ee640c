"""The service: replicas, HTTP applications, cluster side and child processes."""
