"""The search over combinations of changes: on published kinds of trainings, small and large."""
