"""Layouts in the wild: one file, one small class each."""
