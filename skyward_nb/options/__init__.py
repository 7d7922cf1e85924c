"""Reads options, arguments and defaults into the spec of a pool and the options of a run.

`option_table.OPTIONS` has a row for each option. `option_line` reads a line into `ParsedOptions`, `arguments` those of
`sky.Compute`; `defaults` completes them from files and `SKYWARD_*`; `specs.spec_of` makes a `PoolSpec` of them, and
says where a pool that is up differs. What is about one provider has a module: `slurm_options`, `rental_options`.

No machine is asked here. No option is read and then ignored: one that does not fit raises `OptionError`.
"""
