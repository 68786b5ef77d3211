"""The ground floor: what a complex is, how it lies on disk, how it is read and written."""
