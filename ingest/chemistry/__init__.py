"""Which atoms count, what they are, what a label means."""
