"""Data sets to batches: ranges of bytes, blocks, an epoch's order, the stream."""
