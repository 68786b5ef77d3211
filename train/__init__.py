"""Shards to a trained model and an honest judgement of it."""
