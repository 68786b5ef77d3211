"""The transformer and its loss."""
