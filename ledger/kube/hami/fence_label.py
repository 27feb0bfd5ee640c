"""Fence label: a write of this label gives a pod a new resourceVersion.

The API server stores a Binding only while the pod is at the version that the Binding names. No
program reads the label, so its value has no meaning, and tenants may write it.
"""

from typing import Final

LABEL: Final = "gpuledger.io/bind-fence"
"""A label, because webhooks review changes of annotations and would call the replica that was
killed."""
