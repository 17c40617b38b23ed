"""Events of one rank: threads, device streams, steps, phases, layers."""
