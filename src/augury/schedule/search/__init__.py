"""The search for an order of pieces, used by prediction and runtime alike."""
