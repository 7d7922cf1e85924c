"""Hosts that one can log in to, as machines of pools. Nothing here is imported before it is used."""
