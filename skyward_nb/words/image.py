"""The environment of a node as one value: `Image`. Pure."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import force_setattr, replace

from skyward_nb.words.errors import OptionError
from skyward_nb.words.masking import masked_address, masked_repr

_PYTHON = re.compile(r"\d+\.\d+(\.\d+)?")
_WHOLE = ("/", "~/")
_DEBIAN = re.compile(r"[a-z0-9][a-z0-9+.\-]*(:[a-z0-9\-]+)?(=[A-Za-z0-9.+:~\-]+)?")


class Image(msgspec.Struct, frozen=True, kw_only=True):
    """The environment of a node: Python, packages, variables, the user's own modules.

    `python` is a version such as `"3.12"` (None: the notebook's), of which the minor counts; `interpreter` is
    the path of a Python on the node whose environment is used as it is; `pip` has requirements in pip's form,
    `apt` Debian packages, `name` or `name=version`; `env` has variables of the ranks; `includes` has modules by
    name, or paths of `.py` files and folders of packages, which ranks can import as they are here. Raises
    `OptionError` for other values than text.
    """

    python: str | None = None
    interpreter: str | None = None
    pip: Sequence[str] = ()
    apt: Sequence[str] = ()
    env: Mapping[str, str] = {}
    includes: Sequence[str] = ()

    def __post_init__(self) -> None:
        force_setattr(self, "python", read_python(self.python))
        force_setattr(self, "interpreter", _interpreter(self.interpreter))
        for field in ("pip", "apt", "includes"):
            force_setattr(self, field, _texts(field, getattr(self, field)))
        force_setattr(self, "env", checked_env(self.env))
        for package in self.apt:
            if not _DEBIAN.fullmatch(package):
                raise OptionError(
                    "apt", f"apt={package!r}: name a package, such as ffmpeg, or ffmpeg=7:5.1.6"
                )

    def __repr__(self) -> str:
        return masked_repr(self, brief=True)

    def having(
        self, python: str | None = None, pip: Iterable[str] = (), apt: Iterable[str] = ()
    ) -> Image:
        """This image with another Python, if its version or path is given, and more packages."""
        path = python if isinstance(python, str) and python.startswith(_WHOLE) else None
        return replace(
            self,
            python=python or self.python if path is None else None,
            interpreter=path if python else self.interpreter,
            pip=(*self.pip, *_texts("pip", pip)),
            apt=(*self.apt, *_texts("apt", apt)),
        )

    def lacks(self, other: Image) -> bool:
        """Whether `other` has another Python or interpreter, or more packages."""
        return bool(
            (other.python and other.python != self.python)
            or (other.interpreter and other.interpreter != self.interpreter)
            or set(other.pip) - set(self.pip)
            or set(other.apt) - set(self.apt)
        )


def read_python(version: Any) -> str | None:
    """A version of Python such as `3.12`; None for `auto`, which is the notebook's own."""
    if version is None or version == "auto":
        return None
    if not isinstance(version, str) or not _PYTHON.fullmatch(version):
        raise OptionError("python", f"python={version!r}: give a version as text, such as '3.12'")
    return version


def read_python_or_path(text: Any) -> str | None:
    """A version of Python, or the whole path of one on the nodes; None for `auto`."""
    if isinstance(text, str) and text.startswith(_WHOLE):
        return _interpreter(text)
    return read_python(text)


def _interpreter(path: Any) -> str | None:
    """A path as text; raises `OptionError` for a relative one."""
    if path is None:
        return None
    text = os.fspath(path) if isinstance(path, os.PathLike) else path
    whole = isinstance(text, str) and text.startswith(_WHOLE)
    if not whole or not text.isprintable():
        raise OptionError(
            "interpreter",
            f"interpreter={path!r}: give the whole path of a Python on the node, such as "
            "'/opt/conda/bin/python' or '~/envs/train/bin/python'",
        )
    return text


def checked_env(env: Any) -> dict[str, str]:
    """Variables by their names, all of them text; raises `OptionError` for other values."""
    if not isinstance(env, Mapping):
        kind = type(env).__name__
        raise OptionError("env", f"env= takes a dict of texts, such as {{'A': 'x'}}, not {kind}")
    found: dict[str, str] = {}
    for name, value in env.items():
        if not isinstance(name, str) or not name or {"=", "\0"} & {*name}:
            raise OptionError("env", f"env=: {name!r} is not a variable name")
        if not isinstance(value, str) or "\0" in value:
            kind = type(value).__name__
            raise OptionError("env", f"env=: {name} must be a text, not {kind}: use str(value)")
        found[name] = value
    return found


def _texts(field: str, values: Any) -> tuple[str, ...]:
    """The texts of a list, each once; raises `OptionError` for other values."""
    if isinstance(values, str):
        shown = masked_address(values)
        raise OptionError(field, f"{field}= takes a list: {field}=[{shown!r}]")
    if not isinstance(values, Iterable):
        kind = type(values).__name__
        raise OptionError(field, f"{field}= takes a list of texts, not {kind}")
    found: list[str] = []
    for value in values:
        text = os.fspath(value) if isinstance(value, os.PathLike) else value
        if not isinstance(text, str) or not text.strip() or "\0" in text:
            kind = type(value).__name__
            raise OptionError(
                field, f"{field}= takes a list of texts; {value!r} ({kind}) is not one"
            )
        found.append(text.strip())
    return tuple(dict.fromkeys(found))
