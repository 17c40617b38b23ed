"""A recorded run as a Graph."""
