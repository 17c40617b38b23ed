"""Names that frameworks give to their events, one file per framework."""
