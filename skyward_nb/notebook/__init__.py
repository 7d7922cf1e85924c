"""The part in IPython: the magics, the verbs of `%sky`, and the pools of one notebook.

No value is let go that anybody but IPython's history holds (`value_history`).
"""
