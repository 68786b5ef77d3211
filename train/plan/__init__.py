"""What a layout of processes costs, before any of them starts."""
