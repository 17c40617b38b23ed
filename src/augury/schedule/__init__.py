"""Communication policies: each compiles a Problem into an Order for replay and runtime alike."""
