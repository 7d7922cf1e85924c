"""A `RunView` drawn: as HTML (`page`), as text (`text`), as a record for front ends (`record`). Pure.

`wording` has the words and rows that all of them share, `curves` and `curve_svg` draw metrics. The record's types have
their JSON schema in `run.schema.json` (`make schema`).

No text of a rank becomes markup. Nothing is read but the view: the same view always gives the same picture.
"""
