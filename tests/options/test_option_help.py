"""Help and completion come from the table."""

import pytest

from skyward_nb.options.option_help import VERBS, complete, help_text
from skyward_nb.options.option_table import OPTIONS
from skyward_nb.words.errors import OptionError


def test_help_has_every_option_and_verb():
    text = help_text()
    assert all(o.name in text and o.help in text for o in OPTIONS if o.scope != "verb")
    assert all(verb in text for verb in VERBS)
    assert max(map(len, text.splitlines())) <= 100


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help(verb):
    form, text = VERBS[verb]
    assert help_text(verb).splitlines()[:2] == [f"%sky {verb} {form}".rstrip(), f"  {text}"]


def test_help_of_one_verb():
    assert help_text("up").startswith("%sky up")
    assert all(f"\n  {each} " in help_text("up") for each in ("replace", "dry_run"))
    assert "as=NAME" in help_text("pull")
    with pytest.raises(OptionError, match="the verbs are up"):
        help_text("nope")


@pytest.mark.parametrize(
    ("line", "symbol", "found"),
    [
        ("%%sky_remote no", "no", ["nodes="]),
        ("%%sky_remote nodes=4 acc", "acc", ["accelerator=", "account="]),
        ("%%sky_remote --fr", "fr", ["--framework="]),
        ("%%sky_remote qui", "qui", ["quiet"]),
        ("%%sky_remote framework=t", "t", ["torch", "tensorflow"]),
        ("%%sky_remote gather=", "", ["all", "head", "none"]),
        ("%%sky_remote out=hi", "hi", ["history"]),
        ("%%sky_remote nodes=4 no", "no", ["no"]),
        ("%%sky_remote nodes=", "", ["1", "2", "4", "8"]),
        ("%%sky_remote idle=", "", ["10m"]),
        ("%%sky_remote cpus=8", "8", ["8", "8+"]),
        ("%%sky_remote key=", "", []),
        ("%%sky_remote nodes={hi", "hi", []),
        ("%%sky_remote pool=c", "c", ["class"]),
        ("%sky down ", "", ["all", "class", "pool=", "now"]),
        ("%sky restart cl", "cl", ["class"]),
        ("%sky attach class de", "de", ["detach"]),
        ("%sky help at", "at", ["attach"]),
        ("%sky re", "re", ["restart"]),
        ("%sky up no", "no", ["nodes="]),
        ("%sky up ou", "ou", ["ou"]),
        ("%sky up repl", "repl", ["replace"]),
        ("%sky up nodes=4 dr", "dr", ["dry_run"]),
        ("%sky push ", "", ["history", "x"]),
        ("%sky pull x ga", "ga", ["gather="]),
        ("%sky pull hi", "hi", ["history"]),
        ("%sky pull x as=hi", "hi", ["history"]),
        ("%sky vars ra", "ra", ["ranks="]),
        ("%sky check ", "", ["hang", "class", "pool="]),
        ("%sky check ha", "ha", ["hang"]),
        ("%sky check hang ", "", ["class", "pool="]),
        ("%sky check hang po", "po", ["pool="]),
    ],
)
def test_completion(line, symbol, found):
    assert complete(line, symbol, ["history", "x"], ["class"]) == found
