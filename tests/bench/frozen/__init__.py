"""Frozen baselines: HTTP stack, reviews and registration of commit 75bd653, copied.

They import no HTTP module of the product, so the baselines do not change with the product.
"""
