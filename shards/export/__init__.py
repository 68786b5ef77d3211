"""Complexes out of a data set again, in formats that others read without us: no one is locked in."""
