"""Network traffic of a run: socket calls, messages, their attribution, and clocks from them."""
