"""What to read: globs and fsspec URLs become a pinned, ordered list of files."""
