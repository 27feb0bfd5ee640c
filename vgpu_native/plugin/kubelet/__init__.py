"""The kubelet's state and API: its checkpoint, its pod resources, its device plugin API."""
