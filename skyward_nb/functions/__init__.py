"""Functions on pools: what is called, how calls run, and what they give."""
