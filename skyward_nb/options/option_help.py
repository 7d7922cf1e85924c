"""The help of the magics and the completions of their lines, from the table of options. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import islice

from skyward_nb.options.option_table import BY_NAME, NAMES_A_POOL, OPTIONS, TAKES, UP_TAKES, Option
from skyward_nb.options.synonyms import VERB_ALIASES, VERB_HINTS
from skyward_nb.words.errors import OptionError
from skyward_nb.words.units import near_words

# fmt: off
VERBS = {
    "up": ("[pool option ...]", "start a pool before a cell needs it; dry_run: show what it costs"),
    "down": ("[POOL] [all] [now]", "end this notebook's pools, or one; all: earlier kernels', too"),
    "status": ("[POOL]", "pools of this notebook with their ranks, and other pools"),
    "vars": ("[POOL] [ranks=]", "the names on the ranks: type, size, and where they were bound"),
    "cost": ("[POOL]", "cost of pools: an hour, so far, and of pools that ended"),
    "push": ("a,b [ranks=]", "send names of the notebook, whatever ranks have"),
    "pull": ("a,b [as=NAME]", "bring names of the ranks; also ranks=, gather=head, limit="),
    "run": ("[option ...] FILE [ARG ...]", "run a script, or -m MODULE, on the ranks of a pool"),
    "torchrun": (
        "[option] FILE [ARG ...]", "torchrun with its own options, on nodes of a pool"),
    "script": ("FILE.py [cells=3-7]", "write cells, and what they read, as a script"),
    "fetch": ("runs/*.pt ... [pool=]", "bring files that scripts made on machines elsewhere"),
    "logs": ("[POOL] [run=] [rank=]", "output of a run; node=: of machines; lines=, save=, follow"),
    "show": ("[POOL] [run=]", "a run again (the last); from disk, in a terminal: its last lines"),
    "attach": ("[POOL] [detach]", "attach to a pool that another kernel left, and to its run"),
    "check": ("[hang] [POOL]", "devices, versions, network, all-reduce; hang: where ranks are"),
    "debug": ("[POOL] [rank=]", "pdb over the frames of a rank that failed or was stopped"),
    "restart": ("[POOL]", "a new generation: new ranks without names"),
    "sweep": ("[now]", "remove what dead pools have left: processes, values, machines"),
    "bake": ("[NAME] [remove]", "image of a machine, then the pool's end; alone: a list"),
    "config": ("[option=value ...]", "set defaults of this session; alone: show all defaults"),
    "on": ("[option=value ...]", "run every cell on ranks; %%local, magics and ! stay here"),
    "off": ("", "run cells here again"),
    "help": ("[VERB]", "this text, or the help of one verb"),
}
# fmt: on

# fmt: off
_OF_ONE_SOURCE: dict[str, tuple[str, ...]] = {
    "options of hosts by SSH": ("hosts", "user", "port", "key", "config", "trust"),
    "options of Slurm (and partition=NAME)": (
        "login", "job", "account", "qos", "constraint", "reservation", "gres", "exclusive", "extra", "module", "container"),
    "options of Kubernetes": ("context", "namespace", "queue", "service_account"),
    "options of Ray": ("address", "resources", "waits"),
    "options of SkyPilot": ("infra",),
    "options of several sources of nodes": ("cpus", "memory", "on_preempt", "cache", "ca"),
    "options of rented machines": ("spot", "max_cost", "max_hourly_cost", "confirm_above", "yes"),
    "options of AWS": (
        "region", "zones", "instance_type", "ami", "subnet", "security_group", "public_ip", "jump", "caller", "tags",
        "disk", "throughput", "instance_profile", "volumes", "capacity_block", "warm", "aws_profile"),
}
"""Options that have a meaning for one source of nodes, or for few; an option that is not named is one of any pool."""
# fmt: on

_EXAMPLES = {
    "%%sky_remote nodes=4 framework=torch": "four ranks on this machine, in a process group of torch",
    "%%sky_remote hosts=gpu1,gpu2": "ranks on hosts that you reach by SSH",
    "%%sky_remote": "another cell on the same ranks, with the names they have",
    "%sky down": "the end of the pool",
}

CHECKS = ("hang",)
"""The bare words of `%sky check`."""


def help_text(verb: str | None = None) -> str:
    """The help of the magics, or of one verb of `%sky`; raises `OptionError` for other words."""
    if verb is None:
        lines = [
            "%%sky_remote [option ...]   runs the cell on the ranks of a pool",
            "%sky VERB [option ...]",
            "",
            *rows(_EXAMPLES.items()),
            "",
            "verbs of %sky",
            *rows((f"{name} {form}".strip(), text) for name, (form, text) in VERBS.items()),
            "",
            "options of a cell",
            *_options("cell"),
            "",
            *_of_pools(),
        ]
        return "\n".join(lines)
    verb = VERB_ALIASES.get(verb, verb)
    if verb not in VERBS:
        raise OptionError(verb, unknown_verb(verb))
    form, text = VERBS[verb]
    lines = [f"%sky {verb} {form}".rstrip(), f"  {text}"]
    if verb == "up":
        lines += ["", *_of_pools()]
    if taken := UP_TAKES if verb == "up" else TAKES.get(verb):
        lines += ["", *rows((usage(BY_NAME[each]), BY_NAME[each].help) for each in taken)]
    return "\n".join(lines)


def unknown_verb(verb: str) -> str:
    """What to say about a word that is no verb of `%sky`."""
    known = f": the verbs are {', '.join(VERBS)}"
    if not verb:
        return f"%sky needs a verb{known}"
    hint = f": {VERB_HINTS[verb]}" if verb in VERB_HINTS else near_words(verb, VERBS) or known
    return f"%sky has no verb {verb!r}{hint}"


def _options(scope: str) -> list[str]:
    return _rows_of([option for option in OPTIONS if option.scope == scope])


def _rows_of(options: Iterable[Option]) -> list[str]:
    return rows((usage(option), option.help) for option in options)


def _of_pools() -> list[str]:
    """All options of pools, those of one source of nodes under its name."""
    of_one = {name for names in _OF_ONE_SOURCE.values() for name in names}
    general = [each for each in OPTIONS if each.scope == "pool" and each.name not in of_one]
    groups = {"options of a pool (they shape it when it is made)": general} | {
        title: [BY_NAME[name] for name in names] for title, names in _OF_ONE_SOURCE.items()
    }
    # In one table, so that all columns begin at the same place.
    lines = iter(_rows_of(option for options in groups.values() for option in options))
    found: list[str] = []
    for title, options in groups.items():
        found += ["", title, *islice(lines, len(options))]
    return found[1:]


def usage(option: Option) -> str:
    """The form of an option on a line."""
    return option.name if option.is_flag else f"{option.name}={option.form}"


_WIDEST = 37
"""Characters of the first column, at most; the choices of `provider=` are more."""


def rows(table: Iterable[tuple[str, str]]) -> list[str]:
    """Lines of two columns; what is too wide for the first moves the second of its line."""
    pairs = list(table)
    width = max((len(left) for left, _ in pairs if len(left) <= _WIDEST), default=0)
    return [f"  {left:<{width}}  {right}" for left, right in pairs]


def complete(
    line: str, symbol: str, names: Iterable[str] = (), pools: Iterable[str] = ()
) -> list[str]:
    """Completions of `symbol`, the last token typed on the option `line` of a magic.

    `names` are the notebook's variables, for options that take one, `pools` the names of pools.
    """
    before = line[: len(line) - len(symbol)] if symbol else line
    words = before.split()
    token = (words[-1] if before and not before[-1].isspace() and words else "") + symbol
    if words[:1] == ["%sky"] and len(words) == 1 and before[-1:].isspace():
        return [verb for verb in VERBS if verb.startswith(symbol)]
    key, equals, value = token.removeprefix("--").partition("=")
    if equals:
        return _values(key, value, symbol, pools if key == "pool" else names)
    used = {word.removeprefix("--").partition("=")[0] for word in words}
    if "{" in token or "$" in token:
        return []
    dashes = "--" if token.startswith("--") else ""
    if words[:2] in (["%sky", "push"], ["%sky", "pull"]) and len(words) == 2 and not symbol:
        return list(names)
    if words == ["%sky", "help"]:
        return [verb for verb in VERBS if verb.startswith(symbol)]
    if words[:1] == ["%sky"] and len(words) > 1 and words[1] in TAKES:
        offered: Iterable[str] = {"check": CHECKS, "down": ("all",)}.get(words[1], ())
        if words[2:]:
            offered = ()
        if words[1] in NAMES_A_POOL and {*words[2:]} <= {*CHECKS}:
            offered = (*offered, *pools)
        found = [each for each in offered if each.startswith(token)]
        return found + _of_verb(words[1], key, used, names)
    is_up = words[:2] == ["%sky", "up"]
    takes_all = words[:1] != ["%sky"] or words[:2] == ["%sky", "on"]
    scopes = ("pool", "cell") if takes_all else ("pool",)
    found = [
        f"{dashes}{option.name}{'' if option.is_flag else '='}"
        for option in OPTIONS
        if option.name.startswith(key)
        and option.name not in used
        and (option.scope in scopes or (is_up and option.name in UP_TAKES))
    ]
    return found or [symbol]


def _of_verb(verb: str, key: str, used: set[str], names: Iterable[str]) -> list[str]:
    options = [
        f"{each}{'' if BY_NAME[each].is_flag else '='}"
        for each in TAKES[verb]
        if each.startswith(key) and each not in used
    ]
    takes_names = verb in ("push", "pull")
    return options + [name for name in names if takes_names and name.startswith(key)]


def _values(key: str, value: str, symbol: str, names: Iterable[str]) -> list[str]:
    option = BY_NAME.get(key)
    if option is None:
        return []
    choices: Iterable[str] = option.choices or _examples(option.form)
    if key in ("out", "pull", "push", "as", "image", "pool"):
        choices = names
    elif key in ("rank", "ranks", "stdout", "stderr"):
        choices = ("all", "head") if key.startswith("rank") else ("all", "head", "none")
    elif option.form == "FILE" or "{" in value or "$" in value:
        return []
    # IPython replaces the symbol after its last delimiter; "=" is one, so only the value counts.
    typed = value.rpartition(",")[2]
    kept = symbol[: len(symbol) - len(typed)] if typed else symbol
    found = [kept + choice for choice in choices if choice.startswith(typed)]
    # With nothing to offer, IPython would offer Python's own names.
    return found or [symbol]


def _examples(form: str) -> tuple[str, ...]:
    """Values such as those of a form: `8` and `8+` of `8|8+`."""
    each = [part.partition(",")[0].strip('"') for part in form.split("|")]
    known = [part for part in each if re.fullmatch(r"[a-z\d][\w:+-]*\d\w*\+?|\d\w*\+?", part)]
    return tuple(known) + ("1", "2", "4", "8") * ("N" in each)
