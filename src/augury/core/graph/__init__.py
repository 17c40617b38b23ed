"""The Graph, its builder, its rules and its file."""
