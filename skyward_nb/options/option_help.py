"""The help of the magics and the completions of their lines, from the table of options. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from skyward_nb.options.option_table import BY_NAME, OPTIONS, TAKES, Option
from skyward_nb.words.errors import OptionError

# fmt: off
VERBS = {
    "up": ("[pool option ...]", "start a pool before a cell needs it; dry_run: show what it costs"),
    "down": ("[pool=NAME] [all]", "take a pool down; all: those of earlier kernels, too"),
    "status": ("[pool=NAME]", "pools of this notebook with their ranks, and other pools"),
    "vars": ("[ranks=]", "the names on the ranks: type, size, and where they were bound"),
    "cost": ("[pool=NAME]", "cost of pools: an hour, so far, and of pools that ended"),
    "push": ("a,b [ranks=]", "send names of the notebook, if they changed"),
    "pull": ("a,b [as=NAME]", "bring names of the ranks; also ranks=, gather=head, limit="),
    "logs": ("[run=] [rank=] [node=]", "output of a run; node=: logs of machines; also lines=, save=, follow"),
    "attach": ("[pool=NAME] [detach]", "attach to a pool that another kernel left, and to its run"),
    "check": ("[hang] [pool=NAME]", "devices, versions, network, all-reduce; hang: where ranks are"),
    "restart": ("[pool=NAME]", "a new generation: new ranks without names"),
    "sweep": ("", "remove what dead pools have left: processes, values, machines"),
    "config": ("[option=value ...]", "set defaults of this session; alone: show all defaults"),
    "help": ("[VERB]", "this text, or the help of one verb"),
}
# fmt: on

CHECKS = ("hang",)
"""The bare words of `%sky check`."""


def help_text(verb: str | None = None) -> str:
    """The help of the magics, or of one verb of `%sky`; raises `OptionError` for other words."""
    if verb is None:
        lines = [
            "%%sky_remote [option ...]   runs the cell on the ranks of a pool",
            "%sky VERB [option ...]",
            "",
            *rows((f"{name} {form}".strip(), text) for name, (form, text) in VERBS.items()),
            "",
            "options of a cell",
            *_options("cell"),
            "",
            "options of a pool (they shape it when it is made)",
            *_options("pool"),
        ]
        return "\n".join(lines)
    if verb not in VERBS:
        raise OptionError(verb, f"%sky has no verb {verb!r}: there is {', '.join(VERBS)}")
    form, text = VERBS[verb]
    lines = [f"%sky {verb} {form}".rstrip(), f"  {text}"]
    if verb == "up":
        lines += ["", *_options("pool")]
    if taken := TAKES.get(verb):
        lines += ["", *rows((usage(BY_NAME[each]), BY_NAME[each].help) for each in taken)]
    return "\n".join(lines)


def _options(scope: str) -> list[str]:
    chosen = [option for option in OPTIONS if option.scope == scope]
    return rows((usage(option), option.help) for option in chosen)


def usage(option: Option) -> str:
    """The form of an option on a line."""
    return option.name if option.is_flag else f"{option.name}={option.form}"


def rows(table: Iterable[tuple[str, str]]) -> list[str]:
    """Lines of two columns."""
    pairs = list(table)
    width = max(len(left) for left, _ in pairs)
    return [f"  {left:<{width}}  {right}" for left, right in pairs]


def complete(line: str, symbol: str, names: Iterable[str] = ()) -> list[str]:
    """Completions of `symbol`, the last token typed on the option `line` of a magic.

    `names` are the notebook's variables, for options that take one.
    """
    before = line[: len(line) - len(symbol)] if symbol else line
    words = before.split()
    token = (words[-1] if before and not before[-1].isspace() and words else "") + symbol
    if words[:1] == ["%sky"] and len(words) == 1 and before[-1:].isspace():
        return [verb for verb in VERBS if verb.startswith(symbol)]
    key, equals, value = token.removeprefix("--").partition("=")
    if equals:
        return _values(key, value, symbol, names)
    used = {word.removeprefix("--").partition("=")[0] for word in words}
    dashes = "--" if token.startswith("--") else ""
    if words[:2] in (["%sky", "push"], ["%sky", "pull"]) and len(words) == 2 and not symbol:
        return list(names)
    if words == ["%sky", "check"] and before[-1:].isspace():
        return [check for check in (*CHECKS, "pool=") if check.startswith(symbol)]
    if words[:1] == ["%sky"] and len(words) > 1 and words[1] in TAKES:
        return _of_verb(words[1], key, used, names)
    scopes = ("pool",) if words[:1] == ["%sky"] else ("pool", "cell")
    return [
        f"{dashes}{option.name}{'' if option.is_flag else '='}"
        for option in OPTIONS
        if option.name.startswith(key) and option.name not in used and option.scope in scopes
    ]


def _of_verb(verb: str, key: str, used: set[str], names: Iterable[str]) -> list[str]:
    options = [f"{each}=" for each in TAKES[verb] if each.startswith(key) and each not in used]
    takes_names = verb in ("push", "pull")
    return options + [name for name in names if takes_names and name.startswith(key)]


def _values(key: str, value: str, symbol: str, names: Iterable[str]) -> list[str]:
    option = BY_NAME.get(key)
    if option is None:
        return []
    choices: Iterable[str] = option.choices
    if key in ("out", "pull", "push", "as", "image"):
        choices = names
    elif key in ("rank", "ranks", "stdout", "stderr"):
        choices = ("all", "head") if key.startswith("rank") else ("all", "head", "none")
    # IPython replaces the symbol after its last delimiter; "=" is one, so only the value counts.
    typed = value.rpartition(",")[2]
    kept = symbol[: len(symbol) - len(typed)] if typed else symbol
    return [kept + choice for choice in choices if choice.startswith(typed)]
