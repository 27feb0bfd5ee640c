"""Kinds of workloads as data: what an object of any kind may run at once, told by one YAML file.

A kind says where its pod templates are, how many pods each of them makes, and when it makes none.
Nothing here knows the name of a kind; the files in `builtin` do, and users add their own.
"""
