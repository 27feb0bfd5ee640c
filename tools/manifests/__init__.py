"""Manifests: the chart rendered into the files of deploy/, checked, and described on its pages."""
