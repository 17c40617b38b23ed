"""What the processes of a job run first. This folder is put on their ``PYTHONPATH``."""
