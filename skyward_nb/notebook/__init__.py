"""What IPython sees: the magics, the verbs of `%sky`, and the pools of one notebook."""
