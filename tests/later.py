"""Packages that take seconds to import: not before a test uses them, in the process that runs it."""

from __future__ import annotations

import gc
import importlib
import importlib.util
import sys
import warnings
from typing import Any

import pytest


class Later:
    """A module that is imported when something of it is first used."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, what: str) -> Any:
        # pytest asks all that a file has whether it is a test, by names such as `__test__`.
        if what.startswith("_"):
            raise AttributeError(what)
        if self._name not in sys.modules:
            self._import()
        return getattr(sys.modules[self._name], what)

    def _import(self) -> None:
        """What it brings stays until the end: later searches for garbage pass it by, seconds each beside frameworks."""
        was_on = gc.isenabled()
        gc.disable()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                importlib.import_module(self._name)
        finally:
            gc.freeze()
            if was_on:
                gc.enable()


def needs(*packages: str) -> pytest.MarkDecorator:
    """For tests that are skipped where one of these is not installed."""
    lacks = [each for each in packages if importlib.util.find_spec(each) is None]
    return pytest.mark.skipif(bool(lacks), reason=f"{', '.join(lacks)} is not installed")
