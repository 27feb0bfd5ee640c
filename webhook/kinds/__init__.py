"""Kinds of workloads as data: the pods that an object may run at once, described in a YAML file.

A kind has the paths of its pod templates, the number of pods that each of them makes, and the
conditions under which it makes none. The name of a kind appears only in the files in `builtin` and
in the files of users.
"""
