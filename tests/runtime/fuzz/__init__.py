"""Random training programs, run under stock DDP and under random plans: results must be equal."""
