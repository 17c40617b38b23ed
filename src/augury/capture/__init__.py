"""Recorders that run inside the processes of a training job, and the launcher that starts them."""
