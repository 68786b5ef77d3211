"""One model in many processes."""
