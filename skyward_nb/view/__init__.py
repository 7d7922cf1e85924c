"""The view of a run: all that a person should see, as one value folded from events. Pure."""
