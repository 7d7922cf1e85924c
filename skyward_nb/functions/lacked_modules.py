"""What of the modules of a program's functions nodes of a new pool will lack, told before the pool starts."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any

from skyward_nb.functions.function import known_functions
from skyward_nb.options.framework_choice import NotebookContext, modules_of_functions
from skyward_nb.options.lacked_packages import lacked_packages
from skyward_nb.reports.source_lines import is_own
from skyward_nb.words.spec import PoolSpec


def lacked_by_functions(namespace: Mapping[str, Any], spec: PoolSpec) -> str:
    """What to type for the modules that the functions of this program use and nodes of this spec will lack; else "".

    These are the functions with `@sky.function` that there are now, of the program and its own modules.
    """
    if not spec.is_elsewhere or spec.image.interpreter is not None:
        return ""
    known = NotebookContext(namespace, (), sys.modules, os.environ, is_own)
    by_function = {
        (each.__module__, each.__qualname__): modules_of_functions(known, [each])
        for each in known_functions()
        if each.__module__ == "__main__" or is_own((each.__module__ or "").partition(".")[0])
    }
    lacks = lacked_packages(frozenset[str]().union(*by_function.values()), spec)
    if not lacks:
        return ""
    users = list(
        dict.fromkeys(name for (_, name), each in by_function.items() if lacks.keys() & each)
    )
    use = f"{', '.join(users)} {'uses' if len(users) == 1 else 'use'}"
    packages = ", ".join(repr(each) for each in dict.fromkeys(lacks.values()))
    return f"nodes will not have {', '.join(lacks)}, which {use}: sky.Compute(pip=[{packages}]) installs it"
