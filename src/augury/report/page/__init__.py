"""Pages of HTML: self-contained documents made of templates and assets."""
