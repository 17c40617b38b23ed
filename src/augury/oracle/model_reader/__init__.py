"""A Model from an ``nn.Module``, a recorded run or JSON."""
