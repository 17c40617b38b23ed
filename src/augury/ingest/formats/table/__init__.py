"""Tables of operations of pipeline-parallel jobs: reading, and matching of their communication."""
