"""Makes Graphs: communication as gangs or expanded into steps; synthetic training runs."""
