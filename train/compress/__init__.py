"""Fewer bytes between replicas: compressors, their exchange, and the optimizers that use it."""
