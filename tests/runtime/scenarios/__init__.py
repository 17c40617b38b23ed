"""Scenarios of training, each run with stock DDP and under a plan: results must be equal.

Every public function of these modules runs on all ranks at once (``tests.runtime.ranks``).
"""
