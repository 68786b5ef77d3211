"""Training configurations, from the embedded sample to 12.8 billion parameters."""
