"""Communication as operations, one file per scheme."""
