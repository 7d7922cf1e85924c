"""The grammar of the option line."""

import pytest

from skyward_nb.options.cell_options import CellOptions
from skyward_nb.options.option_line import (
    LogOptions,
    ParsedOptions,
    parse,
    parse_script,
    parse_verb,
    parse_words,
    split_line,
    split_off,
)
from skyward_nb.words.accelerators import Accelerator
from skyward_nb.words.errors import OptionError
from skyward_nb.words.pool_options import PoolOptions
from skyward_nb.words.units import read_duration


@pytest.mark.parametrize(
    ("line", "pool", "cell"),
    [
        ("", {}, {}),
        ("nodes=4", {"nodes": 4}, {}),
        ("--nodes 4", {"nodes": 4}, {}),
        ("--nodes=4", {"nodes": 4}, {}),
        ("--ranks-per-node 2", {"ranks_per_node": 2}, {}),
        ("quiet", {}, {"quiet": True}),
        ("--quiet", {}, {"quiet": True}),
        ("quiet=no", {}, {"quiet": False}),
        ("accelerator=A100:8", {"accelerator": Accelerator("A100", 8)}, {}),
        ("accelerator=nvidia.a100_80gb:8", {"accelerator": Accelerator("A100-80GB", 8)}, {}),
        ("accelerator=none", {"accelerator": None}, {}),
        ("framework=torch out=h", {"framework": ("torch",)}, {"out": "h"}),
        ("framework=none", {"framework": ()}, {}),
        ("pull='a, b'", {}, {"pull": ("a", "b")}),
        ('env="A=x y,B=2"', {"env": {"A": "x y", "B": "2"}}, {}),
        ("push=none", {}, {"push": ()}),
        ("push=auto", {}, {"push": None}),
        ("idle=10m grace=0.5", {"idle": 600.0, "grace": 0.5}, {}),
        ("ranks_per_node=auto", {"ranks_per_node": None}, {}),
        ("python=3.12 image=img", {"python": "3.12", "image": "img"}, {}),
        ("python=auto", {"python": None}, {}),
        ("python=/opt/env/bin/python", {"python": "/opt/env/bin/python"}, {}),
        ('pip="torch numpy>=2,<3"', {"pip": ("torch", "numpy>=2,<3")}, {}),
        ("pip='jax[cuda,tpu],x==1.0'", {"pip": ("jax[cuda,tpu]", "x==1.0")}, {}),
        ("hosts=gpu1,me@gpu2:22", {"hosts": ("gpu1", "me@gpu2:22")}, {}),
        (
            "hosts=@lab/hosts user=me port=2222",
            {"hosts": ("@lab/hosts",), "user": "me", "port": 2222},
            {},
        ),
        ("trust=first key=~/k config=c", {"trust": ("first",), "key": "~/k", "config": "c"}, {}),
        ("trust=first,values", {"trust": ("first", "values")}, {}),
        ("pip='a, b' apt=git,ffmpeg", {"pip": ("a", "b"), "apt": ("git", "ffmpeg")}, {}),
    ],
)
def test_read(line, pool, cell):
    asked = parse(line)
    assert asked == ParsedOptions(PoolOptions(**pool), CellOptions(**cell))
    assert sorted(asked.stated) == sorted([*pool, *cell])


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("nods=4", "did you mean nodes"),
        ("--frmework torch", "did you mean framework"),
        ("zzz", "%sky help"),
        ("nodes=0", "1 or more"),
        ("hosts=gpu1,-oX", "'-oX' is not a host name"),
        ("hosts=gpu1:ssh", "'ssh' is not a port"),
        ("port=70000", "not a port"),
        ("user=a:b", "not a user name"),
        ("trust=all", "choose one of known, first, values"),
        ("trust=known,first", "host keys are known ones, or the first"),
        ("python=three", "such as '3.12'"),
        ("image=my.image", "not a variable name"),
        ("nodes=four", "whole number"),
        ("nodes=-1", "whole number"),
        ("nodes=2.5", "whole number"),
        ("nodes=", "no value"),
        ("nodes", "nodes=N"),
        ("--nodes", "nodes=N"),
        ("nodes=2 nodes=3", "twice"),
        ("quiet=maybe", "flag"),
        ("accelerator=A100:0", "1 or more"),
        ("accelerator=:8", "write a name"),
        ("accelerator=A10O", "did you mean A10"),
        ("framework=torhc", "did you mean torch"),
        ("framework=mxnet", "choose one of torch"),
        ("backend=mpi", "choose one of auto, gloo, nccl"),
        ("provider=slrum", "choose one of local, ssh, slurm, kubernetes, ray, sky, aws"),
        ("out=a,b", "one name"),
        ("out=3x", "not a variable name"),
        ("pull=a-b", "not a variable name"),
        ("gather=some", "choose one of all, head, none"),
        ("env=A", "NAME=VALUE"),
        ("idle=soon", "such as 90s"),
        ("idle=0", "such as 90s"),
        ("pool=a/b", "letters"),
        ("pool=all", "give it another name, as `%sky down all` is about all pools"),
        ("nodes='4", "cannot be read"),
        ("memory_limit=2 GB", "memory_limit=2 GB: write it without a space, memory_limit=2GB"),
        ("nodes=2 --timeout = 1.5 m", "write it without a space, timeout=1.5m"),
        ("memory_limit=2", "no unit: write memory_limit=2MB or memory_limit=2GB; memory_limit=2B"),
        ("nodes=2 s", "no option 's'"),
        ("local", "no option 'local'"),
    ],
)
def test_refused(line, says):
    with pytest.raises(OptionError, match=says):
        parse(line)


@pytest.mark.parametrize("option", ["timeout=2", "--timeout=2", "--timeout 2"])
def test_a_unit_is_no_script(option):
    with pytest.raises(OptionError, match="write it without a space, timeout=2s"):
        parse_script(f"nodes=2 {option} s train.py")
    assert parse_script("nodes=2 s")[1] == parse_script("timeout=2 -- s")[1] == ["s"]


def test_cell_options_belong_on_cells():
    with pytest.raises(OptionError, match="belongs on a cell"):
        parse("out=x", scopes=("pool",))


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("90s", 90), ("1.5m", 90), ("4h", 14400), ("1d", 86400)]
)
def test_durations(text, seconds):
    assert read_duration("idle", text) == seconds


@pytest.mark.parametrize(
    ("line", "count"),
    [
        ("train.py", 0),
        ("nodes=2 train.py nodes=3", 1),
        ("--nodes 2 train.py --nodes 3", 2),
        ("--nodes=2 keep train.py keep", 2),
        ("--keep train.py", 1),
        ("nodse=2 train.py", 1),
        ("--nodse 2 train.py", 1),
        ("nodes=2", 1),
        ("--nodes", 1),
        ("a/b=c.py x", 0),
        ("nodes train.py", 1),
    ],
)
def test_options_end_where_a_word_is_none(line, count):
    words = line.split()
    assert split_off(words) == (words[:count], words[count:])


def test_two_dashes_end_options():
    assert split_off(["nodes=2", "--", "keep", "--", "x"]) == (["nodes=2"], ["keep", "--", "x"])


def test_words_of_a_shell_are_not_split_again():
    asked = parse_words(
        ["env=A=x y,B=2", "some run"],
        scopes=("pool",),
        words=1,
        is_word=lambda word: "=" not in word,
    )
    assert asked.rest == ("some run",)
    assert asked.pool == PoolOptions(env={"A": "x y", "B": "2"})


@pytest.mark.parametrize(
    ("verb", "line", "says"),
    [
        ("status", "nodes=2", "nodes= is not an option here, only pool="),
        ("sweep", "pool=a", "pool= is not an option here, only now="),
        ("off", "pool=a", "pool= is not an option here: this takes no options"),
        ("pull", "x out=y", "out= is not an option here, only ranks=, as="),
        ("pull", "z1 z2", "names have commas between them: write z1,z2"),
        ("pull", "x ranks=0 a,b", "write x,a,b"),
        ("pull", "x as y", "as needs a value: as=NAME"),
        ("restart", "a b", "no option 'b'"),
        ("push", "x as=y", "as belongs to %sky pull"),
        ("push", "x rank=2", "rank belongs to %sky logs; did you mean ranks?"),
        ("logs", "node=1 run=2", "run=2 selects the output of a run, and node=1 that of machines"),
    ],
)
def test_a_verb_takes_its_own_options_alone(verb, line, says):
    with pytest.raises(OptionError, match=says):
        parse_verb(verb, line, words=1)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("nodes=2  # it's four ranks, ttl=4h", ["nodes=2"]),
        ("# all", []),
        ("nodes=2 #3 ranks", ["nodes=2"]),
        ("image=a#b env=U=http://x/#y", ["image=a#b", "env=U=http://x/#y"]),
        ("env='A=x #y' \"pip=a # b\" nodes=2 # c", ["env=A=x #y", "pip=a # b", "nodes=2"]),
        (r"run a\ #b", ["run", "a #b"]),
    ],
)
def test_a_comment_ends_a_line_and_is_none_within_a_word_or_quotes(line, words):
    assert split_line(line) == words


def test_options_of_verbs():
    asked = parse_verb("logs", "run=default-3fa2b1/7 lines=5 pool=mine")
    assert (asked.logs, asked.pool.name) == (LogOptions(run="default-3fa2b1/7", lines=5), "mine")
    assert parse_verb("pull", "x as=y", words=1).cell == CellOptions(target="y")
    assert parse_verb("down", "").pool.name is None
