"""The frameworks that functions import and use, looked up once for each function."""

from __future__ import annotations

import functools
import os
import sys
import weakref
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType
from typing import Any

from skyward_nb.options.framework_choice import (
    FrameworkChoice,
    NotebookContext,
    choose_for_functions,
)
from skyward_nb.plugins.plugin_table import is_installed
from skyward_nb.reports.source_lines import is_own


class UsedFrameworks:
    """Of functions of a notebook or a script, whose names are a `namespace`."""

    def __init__(self, namespace: Mapping[str, Any]) -> None:
        self._namespace = namespace
        self._known: weakref.WeakKeyDictionary[FunctionType, FrameworkChoice] = (
            weakref.WeakKeyDictionary()
        )

    def of(self, functions: Sequence[Callable[..., Any]]) -> FrameworkChoice:
        """The frameworks that they use, of those installed here."""
        found = [choice for each in functions if (choice := self._of(each)).words]
        if len(found) < 2:
            return found[0] if found else FrameworkChoice((), "")
        words = dict.fromkeys(word for choice in found for word in choice.words)
        return FrameworkChoice(tuple(words), "; ".join(dict.fromkeys(each.why for each in found)))

    def _of(self, function: Callable[..., Any]) -> FrameworkChoice:
        while isinstance(function, functools.partial):  # a method, and the object it is called on
            function = function.func
        if not isinstance(function, FunctionType):
            return FrameworkChoice((), "")
        choice = self._known.get(function)
        if choice is None:
            known = NotebookContext(self._namespace, (), sys.modules, os.environ, is_own)
            choice = choose_for_functions(known, [function]).of(is_installed)
            self._known[function] = choice
        return choice
