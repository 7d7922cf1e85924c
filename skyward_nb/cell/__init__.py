"""The source of a cell: compiled code, the names that it reads, and those that it binds. Pure.

`source.compile_cell` makes a `Cell` of a text, or raises SyntaxError as IPython would show it; `cell_names` reads its
names without running it; `magic_syntax` takes a magic's line and body apart. `cells_script` makes a script of cells.

No other room is imported, and no code of a cell is run.
"""
