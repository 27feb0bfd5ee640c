"""Lists and watches of an API server: informers, discovery and the owner cache."""
