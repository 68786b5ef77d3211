"""What lies on disk: codecs, columns, block tables, the manifest, two containers."""
