"""Data of the timeline in a page: lanes and slices, chosen, merged and packed."""
