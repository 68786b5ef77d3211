"""Structures as they occur in the wild, read into parts; everything accounted for."""
