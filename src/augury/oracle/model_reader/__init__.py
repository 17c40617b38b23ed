"""Readers of Models: from an ``nn.Module``, a recorded run or a JSON file."""
