"""The scheduling problem, the Plan, its rules, its file and its status in a run."""
