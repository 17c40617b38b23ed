"""Pages of HTML: self-contained documents with tables, charts and a timeline."""
