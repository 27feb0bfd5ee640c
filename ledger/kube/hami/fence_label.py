"""The fence: a label whose only use is that writing it gives a pod a new resourceVersion.

The API server stores a Binding only while the pod is at the version that the Binding names. Nothing
is ever read from the label, so its value means nothing, and tenants may write it as they like.
"""

from typing import Final

LABEL: Final = "gpuledger.io/bind-fence"
"""A label and no annotation: webhooks review changes of annotations, and the replica that they ask
may be the very one that was killed."""
