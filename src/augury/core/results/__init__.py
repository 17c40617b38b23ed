"""Results of verbs and API calls as typed structs; their field names are those of the JSON."""
