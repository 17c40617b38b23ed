"""Files that the wire recorder left."""
