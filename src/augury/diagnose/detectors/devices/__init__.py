"""Detectors of causes on devices and on their hosts."""
