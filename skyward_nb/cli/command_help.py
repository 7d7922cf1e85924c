"""Help for the commands, made of the table of options and of the types of what `--json` prints."""

from __future__ import annotations

import inspect
import itertools
import textwrap
from collections.abc import Iterable, Iterator

from msgspec import inspect as types

from skyward_nb.cli.command_table import COMMANDS, POOL
from skyward_nb.cli.documents import (
    Baked,
    Check,
    Down,
    Hang,
    Log,
    Nodes,
    Rehearsal,
    Runs,
    Status,
    Sweep,
)
from skyward_nb.cli.rehearsal_acts import ACTS
from skyward_nb.cli.script import ScriptEnd
from skyward_nb.options.option_help import rows, usage
from skyward_nb.options.option_table import BY_NAME
from skyward_nb.words.errors import OptionError

_WIDTH = 100
_USAGE = """\
usage: skyward-nb COMMAND [--json] [option ...]

Your pools on this machine, made by notebooks, by scripts or by this command.
"""
_ENDS = """\
`key=value` and `--key value` mean the same; flags stand alone. Defaults come from the user's file,
from [tool.skyward] of the nearest pyproject.toml and from SKYWARD_* variables.

With --json a command that failed prints {"error": {"type": ..., "message": ...}}.

exit codes: 0 done; 1 it failed; 2 the command line is wrong; 130 interrupted. `run` ends with that
of the script: the argument of sys.exit on the rank that failed first, or 1 for an exception or a
process that died."""
_ACTS = "\n".join(
    f"  {each.name:7} {each.title}\n          {' '.join(each.options)}" for each in ACTS
)
_MORE = {
    "run": """\
The script runs as __main__ on every rank, with ARGs as its own, in this folder and with its own
folder on sys.path. RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT and the rest are as
torchrun sets them. Words after SCRIPT belong to the script; `--` before it ends those of `run`.

With pool=NAME the script runs on a live pool of that name, in processes of its own, and the pool
stays; else a pool is made and taken down after, or kept for `idle` with `keep`. An interrupt (also
SIGTERM and SIGHUP) stops the script; a second one ends it at once.

Output of ranks goes to stdout and stderr, messages about them to stderr; with --json all of it goes
to stderr.""",
    "torchrun": """\
A pool of --nnodes nodes is made, or pool=NAME used; on each node PyTorch's own elastic agent starts
--nproc-per-node workers, restarts them --max-restarts times, and ends with them. All options of
torchrun are taken as they are, and go before the script; options of the pool are key=value.

Each node has its own --node-rank. --master-addr, --master-port and --rdzv-endpoint are the pool's
where the line names none. Workers that failed are one error; what a function under torch's @record
raised stands there. Output is shown by nodes: rank 1 is the agent of node 1.""",
    "check": """\
With pool=NAME a live, free pool is checked; else a pool with these options is made, checked and
taken down. `check hang` looks at runs of all pools, or of pool=NAME, and disturbs none.""",
    "rehearse": f"""\
Acts, each a pool of its own that is down before the next one comes:

{_ACTS}

The plan and its highest price are shown first, and you are asked; `yes` agrees beforehand. What may
cost more than max_cost= (5 dollars) is refused. Each act says what it must show, and what was seen;
at the end leftovers are swept. The exit code is 1 where something was not shown, or is left.""",
    "bake": """\
NAME is that of the image, which ami=NAME of a later pool with provider=aws starts from. It is made
of the head's machine of the only free pool, or of pool=NAME, which is taken down. The command waits
until the image is ready; AWS finishes it without the command, too. Without NAME all images are
listed, with their prices; with `remove` the image is removed, and the snapshots it consists of;
region= says which of several.""",
    "down": """\
NAME is a pool's name, or its id where several have that name. A pool that a kernel or a script uses
stays up: end it there. Without NAME the only free pool is taken down. If machines may still run,
the exit code is 1.""",
    "sweep": """\
If something is left although it should not be, as AWS or an engine did not confirm its end, the
exit code is 1.""",
    "logs": """\
RUN is a number as in pictures and logs, or pool and number: default-3fa2b1/7. Without RUN, the run
that printed last is shown.

node= shows logs of machines instead: logins, facts, every step of their preparation, the output of
uv and apt, the agent. They are kept even if a pool did not come up; from a live pool the end of
each agent.log is fetched. Name machines by the numbers of nodes or as in hosts=; pool= takes a name
or an id, else the newest pool is meant.""",
}
_DOCUMENTS: dict[str, tuple[type, ...]] = {
    "status": (Status,),
    "logs": (Log, Nodes, Runs),
    "down": (Down,),
    "sweep": (Sweep,),
    "bake": (Baked,),
    "check": (Check, Hang),
    "run": (ScriptEnd,),
    "torchrun": (ScriptEnd,),
    "rehearse": (Rehearsal,),
}


def help_text(command: str) -> str:
    """The help of all, or of one command; raises `OptionError` for no command."""
    if not command:
        table = ((f"{name} {row.form}".strip(), row.help) for name, row in COMMANDS.items())
        more = "skyward-nb COMMAND --help shows its options and its --json document."
        return "\n".join([_USAGE, *rows(table), "", more, "", _ENDS])
    if command not in COMMANDS:
        known = ", ".join(COMMANDS)
        raise OptionError(command, f"there is no command {command!r}: the commands are {known}")
    row = COMMANDS[command]
    blocks = [
        f"usage: skyward-nb {command} [--json] {row.form}".rstrip(),
        f"{row.help[0].upper()}{row.help[1:]}.",
    ]
    blocks += [_MORE[command]] if command in _MORE else []
    shapes = [name for name in row.takes if name in POOL and name != "pool" and command != "bake"]
    own = [name for name in row.takes if name not in shapes]
    blocks += ["\n".join(["options", *_options(own)])] if own else []
    blocks += ["\n".join(["options of a pool that is made", *_options(shapes)])] if shapes else []
    documents = map(_told, _DOCUMENTS[command])
    blocks.append("\n".join(["--json prints one document", *itertools.chain(*documents)]))
    return "\n\n".join([*blocks, _ENDS])


def _options(names: Iterable[str]) -> list[str]:
    return rows((usage(BY_NAME[name]), BY_NAME[name].help) for name in names)


def _told(document: type) -> Iterator[str]:
    """A document and its keys; those of nested objects stand below, by their paths."""
    yield from _wrapped(_sentence(document), 2)
    for path, keys, sentence in _keys(types.type_info(document), ""):
        yield from _wrapped(f"{path}: {keys}" if path else keys, 4, 2)
        if path:
            yield from _wrapped(sentence, 8)


def _keys(of: types.Type, path: str) -> Iterator[tuple[str, str, str]]:
    """The path of an object in a document, its keys and its meaning; then those within it."""
    match of:
        case types.StructType(fields=fields) | types.DataclassType(fields=fields):
            yield path, ", ".join(field.encode_name for field in fields), _sentence(of.cls)
            for field in fields:
                inner = f"{path}.{field.encode_name}" if path else field.encode_name
                yield from _keys(field.type, inner)
        case types.VarTupleType(item_type=item):
            yield from _keys(item, f"{path}[]")
        case types.DictType(value_type=value):
            yield from _keys(value, f"{path}{{}}")
        case types.UnionType(types=several):
            for each in several:
                yield from _keys(each, path)
        case _:
            return


def _wrapped(text: str, indent: int, hanging: int = 0) -> list[str]:
    first, rest = " " * indent, " " * (indent + hanging)
    return textwrap.wrap(text, _WIDTH, initial_indent=first, subsequent_indent=rest)


def _sentence(document: type) -> str:
    """A type's docstring in one line, as it stands for people who read JSON."""
    return " ".join((inspect.getdoc(document) or "").replace("`", "").split())
