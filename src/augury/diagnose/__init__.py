"""What is wrong with a run, and what became of a change; runs held against each other."""
