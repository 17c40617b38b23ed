"""Which collective each message belongs to."""
