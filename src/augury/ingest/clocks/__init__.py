"""One clock for all ranks."""
