"""Front ends in environments of their own; `make test-frontends` runs them."""
