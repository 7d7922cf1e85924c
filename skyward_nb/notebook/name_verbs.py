"""The verbs of `%sky` about names: `push`, `pull`, `vars`."""

from __future__ import annotations

import re
from dataclasses import replace

from skyward_nb.notebook.named_pools import live_pool
from skyward_nb.notebook.session import Session
from skyward_nb.options.cell_options import CellOptions
from skyward_nb.options.option_line import parse_verb
from skyward_nb.picture.wording import columns
from skyward_nb.pool.pool import Pool
from skyward_nb.protocol.events import Variable
from skyward_nb.words.errors import OptionError, PoolError, spell_size
from skyward_nb.words.ranks import count_ranks, spell_ranks


def push(session: Session, line: str) -> None:
    """Send names of the notebook to the ranks, also where these have values of their own by now."""
    pool, names, options = _moving(session, "push", line)
    rows = session.move(pool, replace(options, push=names)).plan.rows
    for status in ("sent", "unchanged", "kept on ranks"):
        there = [f"{row.name} ({spell_size(row.size)})" for row in rows if row.status == status]
        if there:
            print(f"{status}: {', '.join(there)}")


def pull(session: Session, line: str) -> None:
    """Bring names of the ranks."""
    pool, names, options = _moving(session, "pull", line)
    if options.target and len(names) > 1:
        raise OptionError(
            "as", f"as={options.target} names one thing, and {len(names)} are asked for"
        )
    if options.gather == "none":
        raise OptionError("gather", "gather=none would bring nothing")
    ranks = session.move(pool, replace(options, pull=names)).ranks
    head = options.gather == "head"
    what = f"rank {ranks[0]}'s value" if head else f"one value per rank, of {count_ranks(ranks)}"
    print(f"{options.target or ', '.join(names)}: {what}")


def list_vars(session: Session, line: str) -> None:
    """Print the names on the ranks."""
    try:
        pool, _, options = _moving(session, "vars", line)
    except (OptionError, PoolError) as error:
        names = ",".join(re.split(r"[\s,]+", line.strip()))
        if not re.fullmatch(r"\w+(,\w+)*", names) or session.pools.lost(names) is not None:
            raise
        raise OptionError(
            "vars",
            f"{error.message}. `%sky vars` alone lists all names on ranks, and `%sky pull {names}` brings values",
        ) from None
    done = session.move(pool, options, lists_names=True).done
    alike: dict[Variable, list[int]] = {}
    for rank, end in sorted(done.items()):
        for variable in end.variables:
            alike.setdefault(variable, []).append(rank)
    if not alike:
        print(f"no names on {count_ranks(done)}")
        return
    rows = [
        (
            each.name,
            spell_ranks(ranks),
            each.type_name,
            ("> " if each.at_least else "") + spell_size(each.size),
            _bound_by(each.cell),
        )
        for each, ranks in sorted(alike.items(), key=lambda pair: (pair[0].name, pair[1]))
    ]
    for line in columns([("name", "ranks", "type", "size", "bound by"), *rows]):
        print(line)


def _bound_by(cell: int) -> str:
    if cell == 0:
        return "notebook"
    return f"In[{cell}] on the ranks" if cell > 0 else "the ranks"


def _moving(session: Session, verb: str, line: str) -> tuple[Pool, tuple[str, ...], CellOptions]:
    """(pool, names, options) of a verb about names."""
    words = 0 if verb == "vars" else 1
    # Commas may have spaces around them: a, b.
    line = re.sub(r"(?<=\w)\s*,\s*(?=\w)", ",", line)
    asked = parse_verb(verb, line, words=words)
    names = tuple(asked.rest[0].split(",")) if asked.rest else ()
    if words and not names:
        raise OptionError(verb, f"%sky {verb} needs names: %sky {verb} x_train,model")
    return live_pool(session, session.finder.name_of(asked)), names, replace(asked.cell, push=())
