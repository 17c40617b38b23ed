"""Code that runs first in the processes of a job, from a folder on their ``PYTHONPATH``."""
