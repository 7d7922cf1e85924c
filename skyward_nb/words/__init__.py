"""Plain data and errors that the rooms exchange. No IO here."""
