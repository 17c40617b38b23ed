"""Augury foretells distributed training: record, replay, explain, change, verify."""
