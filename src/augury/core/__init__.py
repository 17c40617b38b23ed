"""The nouns (Graph, Trace, Timeline, Plan, ...), units, errors and the ledger."""
