"""Fewer attention heads: which matter, and a model without the others."""
