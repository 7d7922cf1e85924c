"""The tables of the reference as Markdown, made from the tables that the package reads. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from skyward_nb.cli.command_table import COMMANDS, POOL
from skyward_nb.options.option_help import VERBS, usage
from skyward_nb.options.option_table import BY_NAME, OPTIONS, TAKES, UP_TAKES, Option
from skyward_nb.options.synonyms import ALIASES, OPTION_HINTS, VERB_ALIASES, VERB_HINTS
from skyward_nb.words.catalogue import KINDS
from skyward_nb.words.mig import MODELS


def pages() -> dict[str, str]:
    """Each made part of a page by its name."""
    return {
        "cell-options": _options("cell"),
        "pool-options": _options("pool"),
        "verbs": _verbs(),
        "commands": _commands(),
        "other-words": _other_words(),
        "accelerators": _accelerators(),
    }


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = list(head)
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(_escaped(cell) for cell in line)} |\n" for line in lines)


def _escaped(cell: str) -> str:
    return cell.replace("|", "\\|")


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


def _options(scope: str) -> str:
    return _option_table(option for option in OPTIONS if option.scope == scope)


def _option_table(options: Iterable[Option]) -> str:
    return _table(
        ("option", "meaning (default)"),
        ((_code(usage(each)), f"{each.help}{_words(each)}") for each in options),
    )


def _words(option: Option) -> str:
    """The words that its value may be, where its form does not have them all, and they are no long list."""
    further = [each for each in option.choices if each not in option.form.split("|")]
    few = further and option.name not in ("accelerator", "mig", "trust")
    return f": {', '.join(map(_code, option.choices))}" if few else ""


def _accelerators() -> str:
    models = _table(
        ("maker", "name", "GB of memory"),
        ((kind.maker, _code(kind.name), ", ".join(map(str, kind.memory))) for kind in KINDS),
    )
    slices = _table(
        ("GPU", "profiles, and the most slices of each"),
        (
            (str(model), ", ".join(f"`{name}` {most}" for name, most in model.profiles.items()))
            for model in MODELS
        ),
    )
    return f"{models}\n## MIG profiles\n\n{slices}"


def _verbs() -> str:
    parts: list[str] = []
    for verb, (form, text) in VERBS.items():
        taken = UP_TAKES if verb == "up" else TAKES.get(verb, ())
        parts += [f"## `%sky {verb}`\n", f"    %sky {verb} {form}".rstrip() + "\n", f"{text}\n"]
        if taken:
            parts.append(_option_table(BY_NAME[each] for each in taken))
    return "\n".join(parts)


def _commands() -> str:
    parts: list[str] = []
    for name, command in COMMANDS.items():
        parts += [
            f"## `skyward-nb {name}`\n",
            f"    skyward-nb {name} {command.form}".rstrip() + "\n",
        ]
        parts.append(f"{command.help}\n")
        takes_all = {*POOL} <= {*command.takes}
        takes = [each for each in command.takes if not (takes_all and each in POOL)]
        if takes_all:
            parts.append(
                "Options: those [of a pool](magics.md#options-of-a-pool), but for `image=`.\n"
            )
        if takes:
            parts.append(_option_table(BY_NAME[each] for each in takes))
    return "\n".join(parts)


def _other_words() -> str:
    taken = [
        *(
            (f"{word}=" if word[0] != "-" else word, f"`{meant}=`")
            for word, meant in ALIASES.items()
        ),
        *((f"%sky {word}", f"`%sky {meant}`") for word, meant in VERB_ALIASES.items()),
    ]
    hints: dict[str, list[str]] = {}
    for word, hint in OPTION_HINTS.items():
        hints.setdefault(hint, []).append(f"{word}=")
    for word, hint in VERB_HINTS.items():
        hints.setdefault(hint, []).append(f"%sky {word}")
    means = _table(("word", "means"), ((_code(word), meant) for word, meant in taken))
    says = _table(
        ("word", "the error says"),
        ((" ".join(map(_code, words)), hint) for hint, words in hints.items()),
    )
    return f"{means}\n{says}"
