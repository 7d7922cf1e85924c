"""The part in IPython: the magics, the verbs of `%sky`, and the pools of one notebook."""
