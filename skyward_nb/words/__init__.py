"""Plain data and errors of skyward_nb: what the rooms say to one another. No IO here."""
