"""Communication policies, one file each."""
