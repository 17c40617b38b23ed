"""Mutated files for all readers: none may end in an exception that is no InputError, a hang, or
more memory than the limits."""
