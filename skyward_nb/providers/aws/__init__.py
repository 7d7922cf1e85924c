"""Machines of EC2: rented, logged in to like any other host, and ended for certain."""
