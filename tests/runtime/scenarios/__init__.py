"""What trainings do, each done with stock DDP and under a plan: they must end alike.

Every public function of these modules runs on all ranks at once (``tests.runtime.ranks``).
"""
