"""The nouns, units, errors and the ledger; the executable spec of a Graph."""
