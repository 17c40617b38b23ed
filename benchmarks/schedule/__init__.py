"""Communication scheduling on published and on random problems."""
