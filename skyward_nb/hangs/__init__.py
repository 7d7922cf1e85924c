"""Where ranks are and for whom they wait, read from stacks. Pure."""
