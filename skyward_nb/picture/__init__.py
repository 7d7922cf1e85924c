"""A view drawn: in words, as text, as HTML, as a record for front ends. Pure."""
