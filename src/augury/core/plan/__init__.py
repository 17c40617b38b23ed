"""The scheduling problem, the Plan, its specification, its file and its status in a run."""
