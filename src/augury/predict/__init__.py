"""The prediction layer: opens runs, predicts changes, assesses policies, makes and judges plans."""
