"""Users' objects as bytes with a digest, and back."""
