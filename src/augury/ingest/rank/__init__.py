"""Events of one rank: phases, layers, steps, kernels and their launches."""
