"""The check of libvgpu.so on a machine with a GPU. Standard library of Python 3.9 only."""
