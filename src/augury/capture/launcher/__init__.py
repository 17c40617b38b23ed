"""Starts a job with the recorder, and summarizes the folder it leaves."""
