"""Qualified names: `<cluster>/<name>` for a namespace or a node of a cluster.

They are plain strings on the wire and as keys of the state. Neither part contains a slash.
"""


def qualified(cluster: str, name: str) -> str:
    """Return the qualified name of a namespace or a node of a cluster."""
    return f"{cluster}/{name}"


def split_qualified(qualified_name: str) -> tuple[str, str]:
    """Return `(cluster, name)`; the name is empty when only a cluster is named."""
    cluster, _, name = qualified_name.partition("/")
    return cluster, name


def cluster_of(qualified_name: str) -> str:
    """Return the cluster of a qualified name."""
    return qualified_name.partition("/")[0]


def local_name(qualified_name: str) -> str:
    """Return the name of a namespace or a node in its own cluster."""
    return qualified_name.partition("/")[2]
