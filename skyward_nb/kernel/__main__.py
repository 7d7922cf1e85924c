"""`python -m skyward_nb.kernel`: install, uninstall or list kernels; front ends start one with `-f FILE`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

WRONG = 2
_HELP = """\
python -m skyward_nb.kernel install [--name NAME] [--display-name TEXT]
                                    [--user | --sys-prefix | --prefix FOLDER] [option ...]
python -m skyward_nb.kernel uninstall [NAME]
python -m skyward_nb.kernel list

A kernel whose cells run on the ranks of a pool, without a magic line. The options are those of
%%sky_remote (%sky help lists them), and are the kernel's defaults: --nodes 4 --framework torch"""


def main(words: Sequence[str]) -> int:
    """Do what the command line says; returns the exit code."""
    verb, *rest = words or [""]
    if verb in ("", "help", "-h", "--help") or {"-h", "--help"} & {*rest}:
        print(_HELP)
        return 0 if verb else WRONG
    if verb not in ("install", "uninstall", "list"):
        if not any(word.startswith("-") for word in words):
            print(f"skyward_nb.kernel has no command {verb!r}\n{_HELP}", file=sys.stderr)
            return WRONG
        from skyward_nb.kernel.pool_kernel import PoolKernelApp

        PoolKernelApp.launch_instance(argv=[*words])
        return 0
    from skyward_nb.kernel import kernelspecs
    from skyward_nb.words.errors import OptionError

    try:
        if verb == "install":
            said = kernelspecs.install(kernelspecs.read(rest))
        elif verb == "uninstall":
            said = kernelspecs.uninstall(rest)
        else:
            said = kernelspecs.listed()
    except (OptionError, OSError) as error:
        print(f"skyward_nb.kernel: {error}", file=sys.stderr)
        return WRONG
    print(said)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
