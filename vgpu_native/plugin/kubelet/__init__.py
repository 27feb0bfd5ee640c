"""What the kubelet records and serves: checkpoint, pod resources and its API."""
