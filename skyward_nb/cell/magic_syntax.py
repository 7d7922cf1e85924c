"""Texts of IPython's magics: what of them is Python, what they bind, what nobody can tell. Pure.

The text is that of `get_ipython().run_line_magic(name, line)` and its like. What is not known here
is taken to read every name it mentions and to bind what it likes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from string import Formatter

WORD = re.compile(r"(?<![\w.])[^\W\d]\w*")
_DOLLAR = re.compile(r"\$(\$?[\w.]+)")
_IN_BRACES = re.compile(r"\{((?:[^{}]|\{[^{}]*\})+)\}")
_STORES = re.compile(r"--?(?:out|err|proc)[ =]+([^\W\d]\w*)")
_OPTION = re.compile(r"\s*(?:--([\w-]+)(?:=\S*)?(?=\s|$)|-([A-Za-z])\s*|(--)(?=\s|$))")


@dataclass(frozen=True)
class Magic:
    """What a magic does with names.

    `texts` are expressions put into the text, `code` is Python that runs, one after the other,
    `mentions` text whose every word may be a name. Code is `scratch` if what it binds is gone
    afterwards, and `may_fail` if an error in it goes no further. `blind` is how a person would
    write what binds names unseen.
    """

    texts: tuple[str, ...] = ()
    code: tuple[str, ...] = ()
    mentions: str = ""
    binds: tuple[str, ...] = ()
    scratch: bool = False
    may_fail: bool = False
    blind: str = ""


def shell(text: str) -> Magic:
    """A command of the shell, `!cmd {name} $name`."""
    return Magic(texts=tuple(_expressions(text)))


def line_magic(name: str, line: str) -> Magic:
    """`%name line`."""
    if name in _CODE:
        return _CODE[name](name, line, None)
    texts = tuple(_expressions(line))
    if name in _PLAIN:
        return Magic(texts=texts)
    if name in OF_OBJECTS:
        return Magic(texts=texts, mentions=line)
    if name == "sc":
        found = re.search(r"([^\W\d]\w*)\s*=", line)
        return Magic(texts=texts, binds=(found[1],) if found else ())
    mentions = "" if name in _OF_NO_OBJECT else line
    return Magic(texts=texts, mentions=mentions, blind=f"%{name}")


def cell_magic(name: str, line: str, body: str) -> Magic:
    """`%%name line` over `body`; IPython puts values into the line alone."""
    if name in _CODE:
        return _CODE[name](name, line, body)
    texts = tuple(_expressions(line))
    if name in _TEXT:
        return Magic(texts=texts)
    if name in _SCRIPTS:
        return Magic(texts=texts, binds=tuple(_STORES.findall(line)))
    if name in ("sx", "system", "!"):
        texts += tuple(_expressions(body))
        return Magic(texts=texts, binds=tuple(_STORES.findall(line)))
    return Magic(texts=texts, mentions=f"{line}\n{body}", blind=f"%%{name}")


def _expressions(text: str) -> Iterator[str]:
    """What stands in `{...}` and behind `$`, as IPython's formatter finds it."""
    if "{" not in text and "$" not in text:
        return
    try:
        pieces = list(Formatter().parse(text))
    except ValueError:
        # IPython puts nothing into such a text; what could be meant is read all the same.
        yield from filter(is_expression, _IN_BRACES.findall(text))
        return
    for literal, expression, spec, _ in pieces:
        for found in _DOLLAR.findall(literal):
            if not found.startswith("$"):
                yield found.rstrip(".")
        if expression:
            # A colon may belong to a slice or a dictionary: IPython reads it so.
            whole = f"{expression}:{spec}" if spec else expression
            yield whole if is_expression(whole) else expression


def is_expression(text: str) -> bool:
    """Whether the text is one Python expression."""
    try:
        compile(text.strip(), "text", "eval", 0x400)  # ast.PyCF_ONLY_AST
    except (SyntaxError, ValueError):
        return False
    return True


# ── magics that run Python ──────────────────────────────────────────────────────────────


def _options(line: str, spec: str) -> tuple[dict[str, list[str]], str]:
    """Options as getopt takes them, and what is left; one that is not known begins the rest.

    `spec` has each letter, with a colon where it takes a value, then long names behind commas.
    """
    letters, *long_names = spec.split(",")
    found: dict[str, list[str]] = {}
    while match := _OPTION.match(line):
        long_name, letter, end = match.groups()
        if end:
            return found, line[match.end() :]
        if long_name is not None:
            if long_name not in long_names:
                break
            found.setdefault(long_name, []).append("")
            line = line[match.end() :]
            continue
        at = letters.find(letter)
        if at < 0:
            break
        value = ""
        rest = line[match.end() :]
        if letters[at + 1 : at + 2] == ":":
            value, _, rest = rest.partition(" ")
        elif rest and not line[: match.end()].endswith((" ", "\t")):
            rest = f"-{rest}"
        found.setdefault(letter, []).append(value)
        line = rest
    return found, line


def _code(spec: str, *, scratch: bool = False, may_fail: bool = True) -> _Reader:
    """A magic that runs its line, and below it its body."""

    def read(name: str, line: str, body: str | None) -> Magic:
        options, rest = _options(line, spec)
        code = [part for part in (rest, body) if part and part.strip()]
        functions = options.get("f", []) if name in ("lprun", "mprun") else []
        return Magic(
            texts=tuple(functions),
            code=tuple(code),
            binds=tuple(options.get("v", ())) if name == "timeit" else (),
            scratch=scratch,
            may_fail=may_fail or "no-raise-error" in options,
        )

    return read


def _capture(name: str, line: str, body: str | None) -> Magic:
    words = [word for word in line.split() if not word.startswith("-")]
    texts = tuple(_expressions(line))
    names = tuple(word for word in words if word.isidentifier())
    return Magic(texts=texts, code=(body or "",), binds=names, may_fail=True)


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_Reader = Callable[[str, str, str | None], Magic]
_CODE: dict[str, _Reader] = {
    "time": _code(",no-raise-error", may_fail=False),
    "timeit": _code("n:r:tcp:qov:", scratch=True),
    "prun": _code("D:l:rs:T:q"),
    "lprun": _code("rsf:m:D:T:u:z"),
    "mprun": _code("rf:m:T:c"),
    "memit": _code("r:t:i:coq"),
    "capture": _capture,
}
RUNS_PYTHON: frozenset[str] = frozenset(_CODE)
"""Magics whose text, or the body below it, is Python of the cell."""
_PLAIN = _words(
    """alias alias_magic autoawait autocall automagic autoreload aimport bookmark cd colors conda
    config dhist dirs doctest_mode env gui history hist killbgscripts load_ext logoff logon logstart
    logstate logstop ls lsmagic magic mamba man matplotlib micromamba mkdir more mv cp rm rmdir cat
    less notebook page pastebin pdb pip popd pprint precision pushd pwd pycat quickref rehashx
    reload_ext save set_env sx system tb tensorboard unalias unload_ext uv who who_ls whos xmode
    connect_info clear autosave ldir lk ll lx lf"""
)
OF_OBJECTS: frozenset[str] = _words("pinfo pinfo2 pdef pdoc pfile psource psearch")
"""Magics that tell of the object that they name."""
_OF_NO_OBJECT = _words("run pylab reset reset_selective load loadpy rerun recall edit macro")
_TEXT = _words("html HTML javascript Javascript js latex markdown svg SVG writefile file")
_SCRIPTS = _words("script sh bash perl ruby pypy python python2 python3 cmd")
