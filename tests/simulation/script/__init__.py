"""A seed as a script: the operations of a run."""
