"""The verbs of `%sky` about files of scripts: cells written as one, results brought from other machines."""

from __future__ import annotations

import ast
import contextlib
import re
import shlex
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from skyward_nb.cell.cells_script import CellsScript, PastCell, cells_script
from skyward_nb.notebook.named_pools import live_pool
from skyward_nb.notebook.session import Session
from skyward_nb.options.option_line import ParsedOptions, parse_words, split_line, words_without
from skyward_nb.options.option_table import TAKES
from skyward_nb.reports.fetched_files import told
from skyward_nb.words.errors import OptionError
from skyward_nb.words.ranks import parse_ranks
from skyward_nb.workdir.patterns import read_pattern
from skyward_nb.workdir.working_folder import WorkingFolder, key_of

_MARK = "Written by `%sky script`"
_OF_PYTHON = ("local", "time", "timeit", "capture")
"""Cell magics whose body is Python that runs here."""
_MOST_TEXT = 2000
_GROUP = """
# Under `skyward-nb run` the process group is there; torchrun and plain Python form it here.
import atexit
import os

import torch.distributed

if not torch.distributed.is_initialized():
    for _name, _value in {"RANK": 0, "WORLD_SIZE": 1, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": 0}.items():
        os.environ.setdefault(_name, str(_value))
    torch.distributed.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    atexit.register(torch.distributed.destroy_process_group)
"""


def script(session: Session, line: str) -> None:
    """Write cells, and what they read of the cells before them, as a script."""
    asked = _read("script", line, most=1)
    if not asked.rest:
        raise OptionError("script", "name the file: %sky script FILE.py [cells=3-7]")
    path = Path(asked.rest[0]).expanduser()
    if path.suffix != ".py":
        raise OptionError("script", f"{path}: a script's name ends with .py")
    if path.exists() and _MARK not in path.read_text(errors="replace"):
        raise OptionError(
            "script", f"{path} is there, and not by %sky script: name another file, or remove it"
        )
    past = list(past_cells(session))
    chosen = _chosen(past, asked.cell.cells)
    made = cells_script(past, chosen, ("sky",))
    values = dict(_literals(session, made, chosen))
    text = _text(path, made, values, [each for each in past if each.number in chosen])
    try:
        compile(text, str(path), "exec", dont_inherit=True)
    except SyntaxError as error:
        raise OptionError("script", f"no script can be made of that: {error.msg}") from None
    path.write_text(text)
    cells = ", ".join(map(str, made.cells))
    print(
        f"{path}: cell{'s' * (len(made.cells) != 1)} {cells}; try: skyward-nb run {_line(past, chosen)}{path}"
    )


def fetch(session: Session, line: str) -> None:
    """Bring files that scripts made on machines elsewhere, in the copies of the last script's folder, or of this one."""
    asked = _read("fetch", line, most=1000)
    if not asked.rest:
        raise OptionError("fetch", "name files: %sky fetch runs/*.pt")
    patterns = tuple(read_pattern("fetch", each) for each in asked.rest)
    pool = live_pool(session, session.finder.name_of(asked))
    spec = pool.spec
    if not spec.is_elsewhere:
        print(f"pool {spec.name} runs on this machine: files of scripts are here already")
        return
    here, transfer = Path.cwd(), pool.sending.folders
    last = transfer.last or WorkingFolder(here, key_of(here, spec.name))
    folder = replace(last, fetch=patterns)
    ranks = parse_ranks("ranks", asked.cell.ranks, spec.world_size)
    brought = transfer.bring(folder, ranks, lambda _: None)
    if folder.root != here:
        print(f"in {folder.root}:")
    print(*told(folder, brought), sep="\n")


def _read(verb: str, line: str, most: int) -> ParsedOptions:
    """The options and the bare words of a line; raises `OptionError`."""
    asked = parse_words(
        split_line(line),
        scopes=("pool", "cell", "verb"),
        words=most,
        is_word=lambda word: "=" not in word and not word.startswith("-"),
    )
    for option in asked.stated:
        if option not in TAKES[verb]:
            names = ", ".join(f"{each}=" for each in TAKES[verb])
            raise OptionError(option, f"{option}= is not an option here, only {names}")
    return asked


# ── cells ───────────────────────────────────────────────────────────────────────────────


def past_cells(session: Session) -> Iterator[PastCell]:
    """The cells of this session before the present one, as Python."""
    manager = session.shell.history_manager
    present, _ = session.cells.present()
    every_on_ranks = session.pools.every_cell.is_on
    for number, raw in enumerate(manager.input_hist_raw[:present] if manager else ()):
        # IPython counts from 1.
        if number and (past := _past_cell(session, number, raw, on_ranks=every_on_ranks)):
            yield past


def _past_cell(session: Session, number: int, raw: str, *, on_ranks: bool) -> PastCell | None:
    """A cell as Python, also below other magics, as in `%%time` over `%%sky_remote`; None for what is none."""
    head, _, body = raw.lstrip("\n").partition("\n")
    magic = re.match(r"%%(\w+)(.*)", head)
    if magic is None:
        return PastCell(number, _python(session, raw), on_ranks=on_ranks)
    if magic[1] == "sky_remote":
        return PastCell(number, _python(session, body), True, magic[2].strip())
    if magic[1] in _OF_PYTHON:
        return _past_cell(session, number, body, on_ranks=False)
    return None


def _python(session: Session, body: str) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the cell's own run has told them
        return session.shell.transform_cell(body.lstrip("\n"))


def _chosen(past: Sequence[PastCell], asked: tuple[int, ...]) -> tuple[int, ...]:
    there = {each.number for each in past}
    if not asked:
        last = max((each.number for each in past if each.on_ranks), default=0)
        if not last:
            raise OptionError("cells", "no cell has run on ranks yet: name some, such as cells=3-7")
        return (last,)
    chosen = tuple(number for number in asked if number in there)
    if not chosen:
        numbers = ", ".join(map(str, asked[:5]))
        raise OptionError("cells", f"no cell of this session has the number {numbers}")
    return chosen


def _literals(
    session: Session, made: CellsScript, chosen: tuple[int, ...]
) -> Iterator[tuple[str, str]]:
    """Values that no cell makes, as Python; raises `OptionError` for those that cannot be written."""
    names = session.shell.user_ns
    for name in made.lacking:
        value = names.get(name)
        text = repr(value)
        with contextlib.suppress(ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            if len(text) <= _MOST_TEXT and name in names and ast.literal_eval(text) == value:
                yield name, text
                continue
        cells = ", ".join(f"In[{number}]" for number in chosen)
        why = f"is a {type(value).__name__} that" if name in names else "is a name that"
        raise OptionError(
            "cells",
            f"{name}, which {cells} or what it needs reads, {why} no cell of this session binds: make it in a cell, "
            "or load it there from a file",
        )


def _line(past: Sequence[PastCell], chosen: tuple[int, ...]) -> str:
    """The options of the last chosen cell, for a line of `skyward-nb run`."""
    said = [each.options for each in past if each.number in chosen and each.options]
    words = split_line(said[-1]) if said else []
    own = ("out", "pull", "push", "gather", "detach", "replace", "text", "limit", "ranks", "image")
    kept = (word for word in words_without(words, own) if "{" not in word)
    return "".join(f"{shlex.quote(word)} " for word in kept)


def _text(path: Path, made: CellsScript, values: dict[str, str], chosen: Sequence[PastCell]) -> str:
    numbers = ", ".join(f"In[{each.number}]" for each in chosen)
    line = _line(chosen, tuple(each.number for each in chosen))
    needs_sky = "skyward_nb" not in made.imports and re.search(
        r"\bsky\.", made.before + made.chosen
    )
    given = [f"{name} = {text}" for name, text in values.items()]
    parts = [
        f'"""{numbers} of a notebook, and what that needs of its other cells. {_MARK}.\n\n'
        f"    python {path.name}\n    torchrun --nproc-per-node=4 {path.name}\n"
        f'    skyward-nb run {line}{path.name}\n"""\n',
        "import skyward_nb as sky\n" if needs_sky else "",
        "# Of no cell\n" + "\n".join(given) + "\n" if given else "",
        made.before.lstrip("\n"),
        _GROUP if any(each.partition(".")[0] == "torch" for each in made.imports) else "",
        made.chosen,
    ]
    return "\n".join(part for part in parts if part) + "\n"
