"""Caches between a slow file system and a reader: keys and bytes, nothing of what they mean."""
