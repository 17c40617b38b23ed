"""Graph -> Graph: one file per change; what-if, diagnosis and the optimizer share them."""
