"""Names and values in a real kernel, as a person meets them."""

import pytest
from kernels import kernel
from leaks import gone_within, traces


@pytest.fixture(scope="module")
def notebook():
    before = traces()
    with kernel() as running:
        yield running
        running.run("%sky down")
        left = {trace for trace in gone_within(30, before) if not trace.startswith("child")}
        assert not left, "left behind"


def sky(notebook, body, options=""):
    return notebook.run(f"%%sky_remote nodes=2 {options}\n{body}")


def lines(ran):
    """What ranks printed: the picture's lines, without its head."""
    assert ran.status == "ok", ran.traceback
    return [line for line in ran.picture.splitlines() if line.startswith("[")]


def test_one_object_in_two_names_is_one_on_the_ranks(notebook):
    notebook.run("shared = [1]\na = {'s': shared}\nb = [shared]")
    assert lines(sky(notebook, "print(a['s'] is b[0] is shared)")) == ["[0-1] True"]
    sky(notebook, "b[0].append(2)")
    assert lines(sky(notebook, "print(a, b)")) == ["[0-1] {'s': [1, 2]} [[1, 2]]"]
    notebook.run("a['more'] = 5")
    # b points into a, so it cannot stay as it was when a is a new one.
    assert lines(sky(notebook, "print(a['s'] is b[0])")) == ["[0-1] True"]


@pytest.mark.extensive
def test_training_on_ranks_survives_what_the_notebook_does_meanwhile(notebook):
    pytest.importorskip("torch")
    notebook.run(
        "import torch\nclass Net(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.fc = torch.nn.Linear(2, 1)\n    def forward(self, x): return self.fc(x)\n"
        "torch.manual_seed(0)\nmodel = Net()\nopt = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "x = torch.ones(4, 2)"
    )
    # Of a framework, so that it is imported once for both ranks.
    trains = "pool=trains framework=torch"
    step = "was = model.fc.weight.clone()\nmodel(x).pow(2).mean().backward()\nopt.step()\n"
    assert lines(sky(notebook, f"{step}print(torch.equal(was, model.fc.weight))", trains)) == [
        "[0-1] False"
    ]
    sky(notebook, "trained = model.fc.weight.detach().clone()", trains)
    notebook.run("opt.param_groups[0]['lr'] = 0.5")
    notebook.run("class Net(torch.nn.Module):\n    def forward(self, x): return self.fc(x) * 2\n")
    ran = sky(
        notebook,
        "print(opt.param_groups[0]['lr'], torch.equal(trained, model.fc.weight),"
        " opt.param_groups[0]['params'][0] is model.fc.weight)",
        trains,
    )
    assert lines(ran) == ["[0-1] 0.5 True True"]
    back = sky(notebook, "model", f"{trains} out=models")
    assert back.status == "ok"
    ran = notebook.run("type(models[0]) is type(model), type(models[0]) is Net")
    assert ran.result == "(True, False)"
    notebook.run("%sky down pool=trains")


def test_a_class_defined_again_takes_effect_and_old_instances_are_told(notebook):
    notebook.run("class Shape:\n    def area(self): return 1\nold = Shape()")
    assert lines(sky(notebook, "print(old.area(), isinstance(old, Shape))")) == ["[0-1] 1 True"]
    notebook.run("class Shape:\n    def area(self): return 2\nnew = Shape()")
    ran = sky(notebook, "print(old.area(), new.area(), isinstance(old, Shape))")
    assert lines(ran) == ["[0-1] 1 2 False"]
    assert "old is of the Shape that was defined before; make it again" in ran.picture
    assert "defined before" not in sky(notebook, "old.area()").picture, "said once"


def test_a_class_changed_in_place_changes_its_instances_on_ranks(notebook):
    notebook.run("class Cell:\n    n = 1\nc = Cell(); c.made = 'here'")
    sky(notebook, "c.made = 'there'")
    notebook.run("Cell.n = 5")
    assert lines(sky(notebook, "print(c.n, c.made)")) == ["[0-1] 5 there"]


def test_modules_of_the_project_are_renewed(notebook, tmp_path):
    module = tmp_path / "sky_names_module.py"
    module.write_text("def f(): return 'first'\nclass K:\n    def m(self): return 1\n")
    notebook.run(
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\nimport sky_names_module\n"
        "from sky_names_module import f, K\nk = K()"
    )
    assert lines(sky(notebook, "print(f(), k.m())")) == ["[0-1] first 1"]
    module.write_text("def f(): return 'edited'\nclass K:\n    def m(self): return 22\n")
    ran = sky(notebook, "print(f(), k.m(), isinstance(k, K), sky_names_module.f is f)")
    assert lines(ran) == ["[0-1] edited 22 True True"]
    notebook.run("later = K()")
    assert lines(sky(notebook, "print(isinstance(later, K), later.m())")) == ["[0-1] True 22"]
    module.write_text("def f(: pass")
    ran = sky(notebook, "f()")
    assert ran.error[0] == "SyntaxError"
    assert "sky_names_module" in ran.traceback and "skyward_nb" not in ran.traceback
    module.write_text("def f(): return 'mended'\nclass K: pass\n")
    assert lines(sky(notebook, "print(f())")) == ["[0-1] mended"]


def test_a_submodule_imported_in_the_notebook_alone(notebook):
    notebook.run("import xml.dom.minidom")
    code = "print(xml.dom.minidom.parseString('<a/>').documentElement.tagName)"
    assert lines(sky(notebook, code)) == ["[0-1] a"]


def test_push_pull_and_vars(notebook):
    sky(notebook, "pass")
    notebook.run("p, q = [1, 2], 'text'")
    assert "sent: p (" in notebook.run("%sky push p,q").stdout
    ran = notebook.run("%sky push p ranks=0")
    assert ran.stdout.startswith("sent: p ("), "whatever ranks have"
    sky(notebook, "p.append(0); q = 7")
    notebook.run("%sky push p,q")
    assert lines(sky(notebook, "print(p, q)")) == ["[0-1] [1, 2] text"]
    sky(notebook, "import os\np.append(os.environ['RANK'])\nmade = len(p)")
    table = notebook.run("%sky vars").stdout.splitlines()
    assert table[0].split() == ["name", "ranks", "type", "size", "bound", "by"]
    rows = {(row.split()[0], row.split()[1]): row for row in table[1:]}
    assert rows["q", "0-1"].endswith("notebook")
    assert " on the ranks" in rows["made", "0-1"] and " int " in rows["made", "0-1"]
    assert ("os", "0-1") not in rows
    assert notebook.run("%sky pull p").stdout == "p: one value per rank, of ranks 0-1\n"
    assert notebook.run("p[0], p[1]").result == "([1, 2, '0'], [1, 2, '1'])"
    assert (
        notebook.run("%sky pull p ranks=1 gather=head as=mine").stdout == "mine: rank 1's value\n"
    )
    assert notebook.run("mine").result == "[1, 2, '1']"
    for line, said in {
        "pull nowhere": "pull=nowhere: no such name on ranks 0-1",
        "pull p,q as=one": "as=one names one thing",
        "push": "needs names",
        "push nowhere": "the notebook has no such name",
        "pull p out=x": "out= is not an option here, only ranks=",
        "vars p": "there is no pool 'p'; pools that are up: default. `%sky vars` alone lists all names",
        "vars p, q": "`%sky pull p,q` brings values",
        "pull p pool=other": "there is no pool 'other'",
    }.items():
        ran = notebook.run(f"%sky {line}")
        assert said in ran.stderr + ran.traceback, line
    assert notebook.run("%%sky_remote as=x\n1").stderr.endswith("as belongs to %sky pull\n")


def test_dry_run_tells_and_does_nothing(notebook):
    notebook.run("import threading\ndry, lock = bytes(3000), threading.Lock()\ndef g(): return dry")
    ran = sky(notebook, "from math import *\ng(); print('ran')", "dry_run")
    assert ran.status == "ok" and ran.result is None
    assert ran.picture.startswith("Dry run: 2 names (")
    assert "would be sent to 2 ranks; nothing was sent or run" in ran.picture
    row = next(line.split() for line in ran.picture.splitlines() if "dry " in line)
    assert row[:4] == ["dry", "bytes", "3.08", "kB"] and "would be sent" in " ".join(row)
    assert "not followed, so names that only this reads would be missing: from math import *" in (
        ran.picture
    )
    assert "<table" in ran.html
    again = sky(notebook, "g()", "dry_run")
    assert again.picture.startswith("Dry run: 2 names ("), "nothing was marked as sent"
    assert "lock: _thread.lock cannot be pickled" in sky(notebook, "lock", "dry_run").traceback
    ran = notebook.run("%%sky_remote nodes=3 pool=unborn dry_run\ndry")
    assert "a pool would be started first: 3 ranks" in ran.picture
    assert "unborn" not in notebook.run("%sky status").stdout


def test_the_runs_record_has_the_manifest(notebook):
    notebook.run("big_list = list(range(1000))")
    ran = sky(notebook, "len(big_list)")
    assert "<details>" in ran.html and "big_list" in ran.html and "sent" in ran.html
    assert "<details>" in sky(notebook, "len(big_list)").html


def test_results_over_the_limit_are_refused_and_stay_on_the_ranks(notebook):
    ran = sky(notebook, "huge = bytes(3_000_000)\nhuge", "limit=1MB out=got")
    assert ran.error[0] == "ResultTooLarge"
    said = ran.traceback
    assert "the run's value is 3 MB on rank 0, over the limit of 1 MB" in said
    assert "big[:1000]" in said and "limit=" in said
    assert sky(notebook, "len(huge)").result == "[0-1] 3000000"
    assert sky(notebook, "huge[:3]", "limit=1MB").result == "[0-1] b'\\x00\\x00\\x00'"
    assert sky(notebook, "1", "limit=much").stderr.endswith("give a size such as 500MB or 2GB\n")


BAD = {
    "a lock deep inside": (
        "import threading\nclass T: pass\nbad = T(); bad.callbacks = [1, 2, T()]\n"
        "bad.callbacks[2].lock = threading.Lock()",
        "bad.callbacks[2].lock: _thread.lock cannot be pickled",
    ),
    "a socket": ("import socket\nbad = socket.socketpair()", "bad[0]: socket.socket cannot"),
    "a file": ("bad = open('/dev/null')", "send its path and open it there"),
    "a generator": ("bad = (i for i in 'ab')", "send list(...) of it"),
    "a running thread": (
        "import threading\nbad = threading.Timer(100, print); bad.daemon = True; bad.start()",
        "bad: threading.Timer cannot be pickled: a thread belongs to its process",
    ),
    "a reduce that raises": (
        "class R:\n    def __reduce__(self): raise ValueError('no way')\nbad = {'r': R()}",
        "bad['r']: __main__.R cannot be pickled: ValueError: no way",
    ),
    "a reduce that lies": (
        "class R:\n    def __reduce__(self): return int, ('no',)\nbad = R()",
        "bad: __main__.R cannot be rebuilt on ranks 0-1: ValueError: invalid literal",
    ),
    "a module that ranks lack": (
        "import sys, types\nghost = types.ModuleType('ghost_module')\n"
        "exec('class G: pass', ghost.__dict__)\nghost.G.__module__ = 'ghost_module'\n"
        "sys.modules['ghost_module'] = ghost\nbad = ghost.G()",
        "pip=ghost_module",
    ),
    "nested too deeply": (
        "bad = []\nfor _ in range(100_000): bad = [bad]",
        "it is nested too deeply",
    ),
    "what invents attributes": (
        "class E:\n    def __init__(self): self.d = {}\n    def __getattr__(self, n): return self.d[n]\n"
        "bad = E()",
        "bad: __main__.E cannot be rebuilt on ranks 0-1: RecursionError",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_what_cannot_travel_is_told_and_changes_nothing(notebook, case):
    code, said = BAD[case]
    notebook.run(f"good = 'before {case}'")
    sky(notebook, "good = good + ' and theirs'")
    assert notebook.run(code).status == "ok"
    ran = sky(notebook, "bad, good", "on_error=wait")
    assert ran.error[0] == "PayloadError"
    assert said in ran.traceback
    assert "skyward_nb/" not in ran.traceback and "Traceback" not in ran.traceback
    assert sky(notebook, "good").result == f"[0-1] 'before {case} and theirs'"
    notebook.run("if hasattr(bad, 'cancel'): bad.cancel()")


def test_a_value_that_changes_while_it_is_packed(notebook):
    notebook.run(
        "import threading, time\ngrowing = {n: n for n in range(300_000)}\nstop = threading.Event()\n"
        "def grow():\n    while not stop.is_set():\n        growing[time.perf_counter()] = 1\n"
        "        growing.pop(next(iter(growing)))\n"
        "writer = threading.Thread(target=grow, daemon=True); writer.start()"
    )
    ran = sky(notebook, "len(growing)")
    notebook.run("stop.set(); writer.join()")
    if ran.error is not None:
        assert "growing" in ran.traceback and "while it is packed" in ran.traceback
    assert sky(notebook, "len(growing)").status == "ok"


def test_names_that_shadow_builtins_come_and_go(notebook):
    notebook.run("max = 5")
    assert sky(notebook, "max").result == "[0-1] 5"
    notebook.run("del max")
    ran = sky(notebook, "max([1, 2])")
    assert ran.result == "[0-1] 2"
    assert "1 removed" in ran.html


def test_what_a_star_import_binds_is_the_ranks_own(notebook):
    notebook.run("sqrt = 'the notebook has its own'")
    sky(notebook, "from math import *")
    assert sky(notebook, "sqrt(4)").result == "[0-1] 2.0"
    sky(notebook, "exec('by_exec = 3')")
    assert sky(notebook, "by_exec").result == "[0-1] 3"


def test_no_room_in_memory_goes_to_disk_with_a_word(tmp_path):
    env = {"SKYWARD_SPILL_DIR": str(tmp_path / "spill")}
    with kernel(**env) as running:
        running.run("from skyward_nb.store import blobs\nblobs.memory_room = lambda folder: 0")
        running.run("big = bytes(1_000_000)")
        ran = running.run("%%sky_remote nodes=2\nlen(big)")
        assert ran.result == "[0-1] 1000000"
        assert "no room in memory for big: put on disk" in ran.picture
        running.run("blobs.disk_room = lambda folder: 0\nlarger = bytes(2_000_000)")
        ran = running.run("%%sky_remote\nlen(larger)")
        assert "larger: bytes does not fit on the ranks' machine" in ran.traceback
        assert running.run("%%sky_remote\nlen(big)").result == "[0-1] 1000000"
        running.run("%sky down")
        assert not list((tmp_path / "spill").glob("*/*"))


M = "class M:\n    def __init__(self, **own):\n        self.w = 0\n        self.__dict__.update(own)\n"
KEPT = {
    "a trained object put into an older list": [
        ("here", M + "registry = []; model = M()"),
        ("sky", "registry", "[0-1] []"),
        ("sky", "model.w += 1\nmodel.w", "[0-1] 1"),
        ("here", "registry.append(model)"),
        ("sky", "model.w, registry[0] is model", "[0-1] (1, True)"),
    ],
    "a holder that changes": [
        ("here", M + "tr = M(model=M()); mod = tr.model"),
        ("sky", "tr.model.w = 5\ntr.model.w", "[0-1] 5"),
        ("sky", "mod.w", "[0-1] 5"),
        ("here", "tr.lr = 3"),
        ("sky", "mod.w, tr.lr, tr.model is mod", "[0-1] (5, 3, True)"),
    ],
    "what was told apart by its key": [
        ("here", M + "grid = {(0, 0): M(), (0, 1): M()}; o = grid[0, 0]"),
        ("sky", "o.w = 3\no is grid[0, 0]", "[0-1] True"),
        ("sky", "grid = {}\n0", "[0-1] 0"),
        ("sky", "o.w, grid", "[0-1] (3, {})"),
    ],
    "another order on the ranks": [
        ("here", "data = [[i] for i in range(5)]"),
        ("sky", "data.reverse()\ndata[0]", "[0-1] [4]"),
        ("here", "sample = data[0]"),
        ("sky", "sample, sample is data[-1]", "[0-1] ([0], True)"),
    ],
    "another binding on the ranks": [
        ("here", "base = [1, 2]; hold = {'base': base}"),
        ("sky", "hold, base", "[0-1] ({'base': [1, 2]}, [1, 2])"),
        ("sky", "base = [9]\nbase", "[0-1] [9]"),
        ("here", "hold['n'] = 1"),
        ("sky", "hold, base", "[0-1] ({'base': [1, 2], 'n': 1}, [9])"),
    ],
    "a new name for the same": [
        ("here", M + "student = M(v=1)"),
        ("sky", "student.w = 9\nstudent.w", "[0-1] 9"),
        ("here", "teacher = student; student = M(v=2)"),
        ("sky", "teacher.w, student.w, student.v", "[0-1] (9, 0, 2)"),
    ],
    "what rebuilding needs": [
        (
            "here",
            "import math\ndef norm(t): return t.lower() + SUFFIX\nSUFFIX = '!'\nclass Key:\n"
            "    def __init__(self, t): self.t = t\n    def __hash__(self): return hash(norm(self.t))\n"
            "    def __eq__(self, o): return norm(self.t) == norm(o.t)\n"
            "class Ang:\n    def __init__(self, d): self.r = math.radians(d)\n"
            "    def __reduce__(self): return Ang, (180,)\n"
            "table, ang = {Key('A'): 1}, Ang(180)",
        ),
        ("sky", "table[Key('a')], round(ang.r, 2)", "[0-1] (1, 3.14)"),
    ],
    "classes of all kinds": [
        (
            "here",
            "import typing, enum, functools\nclass Nt(typing.NamedTuple):\n    a: int\n"
            "class E(enum.Enum):\n    X = 1\n@functools.singledispatch\ndef sd(x): return 'any'\n"
            "@sd.register\ndef _(x: int): return 'int'\n"
            "def deco(f):\n    last = None\n    def g(): return f(), last\n    return g\n"
            "@deco\ndef nothing(): return None\nnt, e = Nt(1), E.X",
        ),
        (
            "sky",
            "nt.a, e is E.X, sd(1), sd('a'), nothing()",
            "[0-1] (1, True, 'int', 'any', (None, None))",
        ),
    ],
    "a value that cannot be rebuilt beside a trained one": [
        (
            "here",
            M + "class Bad:\n    def __init__(self, m): self.m = m\n"
            "    def __setstate__(self, s): raise ValueError('no')\nmod = M()",
        ),
        ("sky", "mod.w = 5\nmod.w", "[0-1] 5"),
        ("here", "bad = Bad(mod)"),
        ("fails", "bad"),
        ("sky", "mod.w", "[0-1] 5"),
    ],
    "some ranks before all": [
        ("here", M + "m = M(); y = {'m': m}"),
        ("sky", "y['m'].w = 3\n0", "[0-1] 0"),
        ("sky ranks=0", "m.w", "[0] 3"),
        ("sky", "m.w, y['m'] is m", "[0-1] (3, True)"),
    ],
    "a part that ranks have dropped": [
        ("here", M + "models = [M(i=i) for i in range(3)]"),
        ("sky", "models.pop().i", "[0-1] 2"),
        ("here", "best = models[2]"),
        ("sky", "best.i, len(models)", "[0-1] (2, 2)"),
    ],
    "closures over one variable": [
        (
            "here",
            "def mk():\n    n = 0\n    def inc():\n        nonlocal n\n        n += 1\n"
            "    def get(): return n\n    return inc, get\ninc, get = mk()",
        ),
        ("sky", "inc(); inc()\nget()", "[0-1] 2"),
    ],
    "classes with slots": [
        (
            "here",
            "import dataclasses\n@dataclasses.dataclass(slots=True)\nclass D:\n    a: int\n    b: str = 'x'\n"
            "class S:\n    __slots__ = ('__p',)\n    def __init__(self): self.__p = 3\n"
            "    def p(self): return self.__p\nd, s = D(1), S()",
        ),
        ("sky", "hasattr(d, '__dict__'), s.p(), d", "[0-1] (False, 3, D(a=1, b='x'))"),
    ],
    "a pull from some": [
        ("here", "pv = 1"),
        ("sky ranks=0", "pv = 2\npv", "[0] 2"),
        ("here", "get_ipython().run_line_magic('sky', 'pull pv ranks=0 gather=head')"),
        ("sky", "pv", "[0-1] 2"),
    ],
    "a name's own value under it": [
        ("sky", "import os\nloss = int(os.environ['RANK'])"),
        ("sky out=loss gather=head", "loss", "0"),
        ("sky", "loss + 1", "[0] 1\n[1] 2"),
        ("sky out=loss gather=head", "loss + 1", "1"),
        ("sky", "loss", "[0-1] 1"),
    ],
    "odd objects on the ranks": [
        (
            "sky",
            "import weakref\nclass Node: pass\nnode = Node()\ndead = weakref.proxy(node)\ndel node\n"
            "class Shy:\n    @property\n    def __dict__(self): raise ValueError\nshy = Shy()\n1",
            "[0-1] 1",
        ),
        ("here", "get_ipython().run_line_magic('sky', 'vars')"),
        ("sky", "shy is not None", "[0-1] True"),
    ],
}


@pytest.mark.parametrize("case", KEPT)
def test_what_ranks_have_stays_theirs(notebook, case):
    notebook.run("%sky restart")
    for how, code, *result in KEPT[case]:
        if how == "here":
            ran = notebook.run(code)
            assert ran.status == "ok", ran.traceback
        elif how == "fails":
            assert sky(notebook, code).error[0] == "PayloadError"
        else:
            ran = sky(notebook, code, how.removeprefix("sky"))
            assert ran.error is None, ran.traceback
            assert [ran.result] == (result or [None])


def test_what_the_notebook_cannot_rebuild_loses_nothing_else(notebook):
    notebook.run(
        "import os\nclass OnlyThere:\n    def __reduce__(self): return OnlyThere.make, (self.here,)\n"
        "    @staticmethod\n    def make(pid):\n        if os.getpid() != pid: raise RuntimeError('only there')\n"
        "        made = OnlyThere(); made.here = pid\n        return made"
    )
    code = "bad = OnlyThere(); bad.here = os.getpid()\nwell = 7\nwell"
    ran = sky(notebook, code, "pull=bad,well out=value")
    assert ran.error[0] == "PayloadError"
    assert (
        "bad: of ranks 0-1 cannot be rebuilt in the notebook: RuntimeError: only there"
        in ran.traceback
    )
    assert "skyward_nb/" not in ran.traceback
    assert notebook.run("list(well), list(value)").result == "([7, 7], [7, 7])"


@pytest.mark.parametrize(
    "code",
    [
        "import dataclasses\n@dataclasses.dataclass(frozen=True)\nclass FE(Exception):\n    code: int = 3\nraise FE(4)",
        "class SE(Exception):\n    def __setattr__(self, *_): raise ValueError\nraise SE()",
        "class AE(Exception):\n    def add_note(self, _): raise ValueError\nraise AE()",
    ],
)
def test_odd_exceptions_are_raised_and_ranks_live_on(notebook, code):
    sky(notebook, "alive = 1")
    ran = sky(notebook, code)
    assert ran.error is not None and "RankDied" not in ran.traceback
    assert sky(notebook, "alive").result == "[0-1] 1"


def test_memory_of_replaced_names_is_given_back(notebook):
    pytest.importorskip("numpy")
    notebook.run("import numpy as np\nhold = {'a': np.ones(1_000_000), 'rest': []}")
    memory = "import psutil, gc\ngc.collect()\npsutil.Process().memory_full_info().uss / 1e6"
    sky(notebook, "hold['a'] += 1")
    for number in range(4):
        notebook.run(f"hold = {{'a': np.ones(1_000_000) * {number}, 'rest': []}}")
        sky(notebook, "hold['a'] += 1")
    before = notebook.run(f"%%sky_remote gather=head out=first\n{memory}")
    assert before.error is None, before.traceback
    for number in range(10):
        notebook.run(f"hold = {{'a': np.ones(1_000_000) * {number}, 'rest': []}}")
        sky(notebook, "hold['a'] += 1")
    notebook.run(f"%%sky_remote gather=head out=last\n{memory}")
    assert float(notebook.run("last - first").result) < 40, "10 × 8 MB were written to"
