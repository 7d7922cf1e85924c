"""What a cell reads and writes: a table of named cases. Adding behaviour is adding a row."""

import ast
import builtins
import sys
from dataclasses import dataclass

import pytest
from IPython.core.inputtransformer2 import TransformerManager

from skyward_nb.cell.cell_names import cell_names, names_of


@dataclass(frozen=True)
class Case:
    name: str
    source: str
    reads: str = ""
    writes: str = ""
    sure: str | None = None
    imports: str | None = None
    blind: tuple[str, ...] = ()
    since: tuple[int, int] = (3, 11)


CASES = [
    Case("assignment", "x = 1", "", "x"),
    Case("expression", "a + b.c[d]", "a b d"),
    Case("bound before use", "x = 1\nx"),
    Case("use before bound", "y = x\nx = 1", "x", "x y"),
    Case("augmented assignment reads", "n += 1", "n", "n"),
    Case("augmented item", "d[k] += v", "d k v"),
    Case("attribute assignment", "model.lr = rate", "model rate"),
    Case("walrus", "if (n := f()) > 1: n", "f", "n"),
    Case("walrus in a comprehension", "[w for i in xs if (w := i)]", "xs", "w"),
    Case("walrus that may not run", "a or (b := 1)\nb", "a b", "b"),
    Case("tuple targets", "a, (b, *c) = z", "z", "a b c"),
    Case("annotated", "x: T = 3", "T", "x"),
    Case("annotation alone", "x: T", "T"),
    Case("delete", "del x", "x", "x"),
    Case("delete an item", "del d[k]", "d k"),
    Case("delete what the cell made", "x = 1\ndel x\nx", "", "x"),
    Case("import", "import a.b, c as d", "", "a d"),
    Case("from import", "from m import f as g, h", "", "g h"),
    Case("comprehension", "[i * k for i in xs]", "k xs"),
    Case("nested comprehension", "{i: [j for j in i if j in s] for i in xs}", "s xs"),
    Case("generator", "sum(x for x in data)", "data"),
    Case("lambda", "f = lambda x, y=k: x + y + m", "k m", "f"),
    Case("function", "def f(a, b=c): return a + b + d", "c d", "f"),
    Case("function never called, its name bound later", "def f(): return y\ny = 1", "", "f y"),
    Case("function called before its name is bound", "def f(): return y\nf()\ny = 1", "y", "f y"),
    Case("function called after its name is bound", "def f(): return y\ny = 1\nf()", "", "f y"),
    Case("function handed on", "def f(): return y\nrun(f)\ny = 1", "run y", "f y"),
    Case("function calling a function", "def g(): return z\ndef f(): return g()\nf()", "z", "f g"),
    Case("recursion", "def f(n): return f(n - 1)\nf(3)", "", "f"),
    Case("locals stay local", "def f():\n    x = 1\n    return x\nf()", "", "f"),
    Case("nested function", "def f(a):\n    def g(): return a + b\n    return g\nf(1)()", "b", "f"),
    Case("global", "def f():\n    global n\n    n += 1\nf()", "n", "f n"),
    Case("global without reading", "def f():\n    global n\n    n = 1\nf()", "", "f n"),
    Case("nonlocal", "def f():\n    v = 0\n    def g():\n        nonlocal v\n        v += w", "w", "f"),
    Case("decorator runs at once", "@dec\ndef f(): return late\nlate = 1", "dec late", "f late"),
    Case("class", "class C(Base, metaclass=M):\n    z = q\n    w = z", "Base M q", "C"),
    Case("class body names are not methods'", "class C:\n    z = 1\n    def m(self): return z", "z", "C"),
    Case("method of a class never used", "class C:\n    def m(self): return late\nlate = 1", "", "C late"),
    Case("method of a class used", "class C:\n    def m(self): return late\nC().m()\nlate = 1", "late", "C late"),
    Case("method decorator and default", "class C:\n    @dec\n    def m(self, a=k): pass", "dec k", "C"),
    Case("for", "for i in xs:\n    t = i\nt", "t xs", "i t"),
    Case("for else", "for i in xs: pass\nelse: done = 1", "xs", "done i"),
    Case("while", "while go(): n = 1", "go", "n"),
    Case("both branches bind", "if c:\n    u = 1\nelse:\n    u = 2\nu", "c", "u"),
    Case("one branch binds", "if c:\n    u = 1\nu", "c u", "u"),
    Case("the other branch leaves", "if c:\n    raise E\nelse:\n    u = 2\nu", "E c", "u"),
    Case("with", "with open_it(p) as f, g: f.read()", "g open_it p", "f"),
    Case("try", "try:\n    a = f()\nexcept E as e:\n    a = e\na", "E f", "a e"),
    Case("try that may not bind", "try:\n    a = f()\nexcept E:\n    pass\na", "E a f", "a"),
    Case("finally", "try:\n    f()\nfinally:\n    done = 1\ndone", "f", "done"),
    Case("except star", "try:\n    f()\nexcept* E as g:\n    g", "E f", "g"),
    Case("match", "match v:\n    case [a, *r]: a\n    case {'k': b, **m}: m\n    case C(x=q): q", "C v", "a b m q r"),
    Case("match with a catch-all", "match v:\n    case 1: u = 1\n    case _: u = 2\nu", "v", "u"),
    Case("async", "async def g(): await h()\nawait g()\nasync for i in s: i", "h s", "g i"),
    Case("async with", "async with lock as l: l", "lock", "l"),
    Case("f-string", "f'{a!r:>{w}} {b.c}'", "a b w"),
    Case("starred call", "f(*args, **kw)", "args f kw"),
    Case("slice", "x[a:b, ...]", "a b x"),
    Case("global statement at the top", "global x\nx = 1", "", "x"),
    Case("line magic", "get_ipython().run_line_magic('ls', '{path} $home')", "get_ipython home path"),
    Case("timed line", "get_ipython().run_line_magic('time', 'r = fn(3)')\nr", "fn get_ipython", "r"),
    Case("timed with flags", "get_ipython().run_line_magic('timeit', '-n 3 -r 2 fn(x)')", "fn get_ipython x"),
    Case("timed cell", "get_ipython().run_cell_magic('time', '', 'z = y + 1\\n')", "get_ipython y", "z"),
    Case("shell", "get_ipython().system('ls {folder}/{name}')", "folder get_ipython name"),
    Case("shell with braces that are no Python", "get_ipython().system('awk {print $1}')", "get_ipython"),
    # Loops: what is known behind one is what all ways out of it know.
    Case("while true with a break before the binding", "while True:\n    if done(): break\n    x = step()\nx", "done step x", "x", ""),
    Case("while true with a break behind it", "while True:\n    x = f()\n    if x: break\nx", "f", "x", "x"),
    Case("while true, tried again", "while True:\n    try:\n        x = f()\n        break\n    except E:\n        pass\nx", "E f", "x", "x"),
    Case("break in a handler", "while True:\n    try: x = f()\n    except E: break\nx", "E f x", "x", ""),
    Case("break as a handler ends its name", "while True:\n    try: f()\n    except E as e: break", "E f", "e", ""),
    Case("for else passed by", "for m in ms:\n    if m.ok: break\nelse:\n    best = None\nbest", "best ms", "best m", ""),
    Case("while else passed by", "while c:\n    if d: break\nelse: y = 1\ny", "c d y", "y", ""),
    Case("for else without break is sure", "for i in s: pass\nelse: y = 1\ny", "s", "i y", "y"),
    Case("while with walrus", "while (line := f()):\n    line\nline", "f", "line", "line"),
    Case("never behind an endless loop", "while True: f()\nnever", "f"),
    Case("deleted in a loop", "x = 1\nfor i in s:\n    del x", "s", "i x", ""),
    Case("deleted, then broken out", "x = 1\nwhile c:\n    del x\n    break", "c", "x", ""),
    Case("deleted in a try", "x = 1\ntry:\n    del x\n    x = f()\nexcept E: pass", "E f", "x", ""),
    Case("deleted by a function", "x = 1\ndef g():\n    global x\n    del x\ng()", "", "g x", "g"),
    # Conditions.
    Case("and, in its branch", "if a and (m := f()): m", "a f", "m", ""),
    Case("or, in its other branch", "if a or not (m := f()): pass\nelse: m", "a f", "m", ""),
    Case("elif chain", "if c: u = 1\nelif d: u = 2\nelse: raise E\nu", "E c d", "u", "u"),
    Case("chained comparison", "a < (b := f()) < (d := g())\nd", "a d f g", "b d", "b"),
    Case("assert message", "assert c, (msg := 1)\nmsg", "c msg", "msg", ""),
    Case("augmented item with walrus", "d[i] += (i := 2)", "d i", "i", "i"),
    Case("dictionary in order", "{a: y, (y := 1): 2}", "a y", "y"),
    Case("targets in order", "x = d[x] = 3", "d", "x"),
    Case("annotation behind its value", "x: x = 3", "", "x"),
    Case("annotated string", "x: 'T' = 3", "T", "x"),
    Case("annotation of a literal", "x: Literal['T'] = 3", "Literal", "x"),
    Case("or-pattern with a catch-all", "match v:\n    case 1 | _: u = 1\nu", "v", "u", "u"),
    Case("guard that may fail", "match v:\n    case x if c: pass\nx", "c v x", "x", ""),
    # Comprehensions.
    Case("walrus accumulator", "[t := t + v for v in values]", "t values", "t", ""),
    Case("walrus behind or", "[x for i in s if x or (x := i)]", "s x", "x", ""),
    Case("walrus in a generator's target order", "e = a((e := g) for g in h for b in e)", "a e h", "e"),
    # with, try.
    Case("suppress", "with contextlib.suppress(E):\n    x = load()\nx", "E contextlib load x", "x", ""),
    Case("behind a raise that is suppressed", "with suppress(E):\n    raise E\nx", "E suppress x", "", ""),
    Case("a person's own manager may swallow", "with mine():\n    x = f()\nx", "f mine", "x", ""),
    Case("no_grad does not swallow", "with torch.no_grad():\n    x = f()\nx", "f torch", "x", "x"),
    Case("finally sees the body half done", "try:\n    h = f()\nfinally:\n    h", "f h", "h", "h"),
    Case("finally is always done", "try:\n    a = f()\nfinally:\n    b = 1\na, b", "f", "a b", "a b"),
    Case("else of a try", "try:\n    x = f()\nexcept E:\n    raise\nelse:\n    y = x\ny", "E f", "x y", "x y"),
    # Bodies that run later.
    Case("defined in two branches", "if c:\n    def f(): return a\nelse:\n    def f(): return b\nf()", "a b c", "f", "f"),
    Case("used in two branches", "def f(): return x\nif c:\n    x = 1\n    f()\nelse:\n    f()", "c x", "f x"),
    Case("used in else and behind", "def show(): return k\ntry: k = g()\nexcept E: pass\nelse: show()\nshow()", "E g k", "k show"),
    Case("used in a loop and behind", "def f(): return x\nfor x in s: f()\nf()", "s x", "f x"),
    Case("used behind and", "def f(): return x\nc and (x := 1) and f()\nf()", "c x", "f x"),
    Case("deletes in one branch's body", "def g():\n    global x\n    del x\nif y:\n    def g(): pass\ng()", "x y", "g x"),
    Case("defined in a loop, used before", "for i in s:\n    f()\n    def f(): return q\n    q = 1", "f q s", "f i q"),
    Case("defined again", "def f(): return a\ndef f(): return b\nf()", "b", "f"),
    Case("decorator that runs it before it has its name", "@dec\ndef h(): return h", "dec h", "h"),
    Case("decorator that only keeps it", "@functools.cache\ndef h(n): return h(n - 1)", "functools", "h"),
    Case("named lambda", "f = lambda v: v + y\ny = 1\nf(2)", "", "f y"),
    Case("global around a nested function", "def a():\n    n = 1\n    def b():\n        global n\n        def c(): return n", "n", "a"),
    Case("query", "def q(df): return df.query('a > @thr')", "thr", "q"),
    Case("private name", "class C:\n    def m(self): return __cfg", "_C__cfg", "C"),
    Case("string annotation of an argument", "def f(x: 'T') -> 'U': pass", "T U", "f"),
    Case("forward reference", "class A:\n    b: 'B'\nclass B: pass", "", "A B"),
    # Class bodies.
    Case("class in a class", "class T:\n    lr = 1\n    class Cfg: rate = lr", "lr", "T"),
    Case("lambda in a class", "class C:\n    n = 1\n    f = lambda self: n", "n", "C"),
    Case("lambda in a call in a class", "class C:\n    n = 1\n    d = dict(a=lambda s: n)", "n", "C"),
    Case("comprehension in a class", "class C:\n    n = 1\n    m = [n for i in (1, 2)]", "n", "C"),
    Case("first source of a comprehension in a class", "class C:\n    n = (1,)\n    m = [1 for i in n]", "", "C"),
    Case("function used in its class", "class C:\n    def g(): return late\n    g()\nlate = 1", "late", "C late"),
    Case("global in a class", "class C:\n    global n\n    n = 1", "", "C n", "C n"),
    Case("class in a function", "def f():\n    class C: lr = lr", "lr", "f"),
    Case("lambda in a class in a function", "def f():\n    class C:\n        n = 1\n        g = lambda: n", "n", "f"),
    Case("names of a class in a function", "def f():\n    class C:\n        n = 1\n        m = n", "", "f"),
    Case("__class__", "class C:\n    def m(self): return __class__", "", "C"),
    # Type parameters.
    Case("generic function", "def f[T: Bound](x: Foo[T]) -> T: pass", "Bound Foo", "f", since=(3, 12)),
    Case("generic class", "class C[T](Base[T]):\n    def m(self, x: T) -> Out: pass", "Base Out", "C", since=(3, 12)),
    Case("type alias", "type X[T] = dict[T, Y]", "Y", "X", since=(3, 12)),
    Case("default of a type parameter", "def f[T = Dflt](x: T): pass", "Dflt", "f", since=(3, 13)),
    # What nobody can see.
    Case("star import", "from m import *\nf()", "f", "", "", "m", ("from m import *",)),
    Case("exec", "exec(s)", "s", blind=("exec(...)",)),
    Case("exec in builtins", "builtins.exec(s)", "builtins s", blind=("exec(...)",)),
    Case("eval of a text", "x = eval('a + b')", "a b", "x", blind=("eval(...)",)),
    Case("globals by another name", "g = globals\ng()['x']", "", "g", blind=("globals(...)",)),
    Case("locals at the top", "f(**locals())", "f", blind=("locals(...)",)),
    Case("locals of a function", "def f(): return locals()", "", "f"),
    Case("shell's namespace", "get_ipython().user_ns['x']", "get_ipython", blind=("get_ipython().user_ns",)),
    Case("imports", "import a.b\nfrom c.d import e\ndef f(): import g", "", "a e f", "a e f", "a.b c.d c.d.e g"),
]  # fmt: skip


# Cells as people write them: IPython's transformer runs first, and again inside of magics.
CELLS = [
    Case("timed cell with a shell line", "%%time\n!nvidia-smi\ny = f(x)", "f x", "y", "y"),
    Case("timed cell with a magic", "%%time\n%matplotlib inline\ny = f(x)", "f x", "y", "y"),
    Case("timed cell that imports", "%%time\nimport torch.nn as nn\nfrom m import *", "", "nn", "nn", "torch.nn m", ("from m import *",)),
    Case("timed cell that does not raise", "%%time --no-raise-error\ny = f(x)", "f x", "y", ""),
    Case("timed line that does not raise", "%time --no-raise-error y = f(x)", "f x", "y", ""),
    Case("timed value", "y = %time f(x)", "f x", "y", "y"),
    Case("captured cell", "%%capture\n!pip install foo\ny = f(x)", "f x", "y", ""),
    Case("captured to a name", "%%capture --no-stderr out\ny = f(x)", "f x", "out y", ""),
    Case("magic in a magic", "%%time\n%%capture\ny = f(x)", "f x", "y", ""),
    Case("timeit binds nothing", "%timeit y = f(x)\ny", "f x y", "", ""),
    Case("timeit with a setup", "%%timeit -n 3 a = g(b)\ny = f(x, a)", "b f g x", "", ""),
    Case("prun with options", "%prun -l 10 -s time f(x)", "f x"),
    Case("prun over a cell", "%%prun -s cumulative\ny = f(x)", "f x", "y", ""),
    Case("lprun", "%lprun -f g f(x)", "f g x"),
    Case("memit", "%%memit\ny = f(x)", "f x", "y", ""),
    Case("code that is none", "%time f(x) y z", "f x y z", blind=("f(x) y z",)),
    Case("shell in a function", "def dl(url):\n    !wget -P {data_dir} {url}\ndl(u)", "data_dir u", "dl", "dl"),
    Case("timeit in a function", "def g(v):\n    %timeit f(x, v)", "f x", "g", "g"),
    Case("shell in a loop", "for u in us:\n    !wget {u} -O {out}", "out us", "u", ""),
    Case("shell's answer", "files = !ls {folder}/*.txt", "folder", "files", "files"),
    Case("conversion", "!echo {x!r} {path[0:2]} $obj.attr", "obj path x"),
    Case("braces in braces", "!echo {f({'a': k})}", "f k"),
    Case("doubled braces", "!echo {{x}} $$y"),
    Case("awk binds nothing", "!awk '{n += 1} END {print n}' file", "", "", ""),
    Case("a shell's own body", "%%bash -s \"$x\"\necho {y} $z", "x"),
    Case("a shell's output", "%%bash --out o --err e\nls", "", "e o", "e o"),
    Case("help", "f?", "f"),
    Case("written file", "%%writefile {name}\nd = {y}", "name"),
    Case("unknown cell magic", "%%cython\ndef fib(n): return k", "fib k n", "", "", blind=("%%cython",)),
    Case("unknown line magic", "%sql res << select {tbl}", "res select tbl", blind=("%sql",)),
    Case("restored names", "%store -r zz", "r zz", blind=("%store",)),
    Case("forgotten names", "x = 1\n%reset -f", "", "x", "", blind=("%reset",)),
    Case("run", "%run script.py {arg}", "arg", blind=("%run",)),
    Case("harmless magics", "%load_ext autoreload\n%autoreload 2\n%env A={x}\n%cd $w", "w x"),
]  # fmt: skip


def check(case, found, *, unasked=frozenset()):
    reads = {name for name in found.reads if not hasattr(builtins, name)} - unasked
    assert reads == set(case.reads.split())
    if case.writes or case.sure is not None:
        assert found.writes == set(case.writes.split())
    if case.sure is not None:
        assert found.sure == set(case.sure.split())
    if case.imports is not None:
        assert found.imports == set(case.imports.split())
    assert found.blind == case.blind


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_reads_and_writes(case):
    if sys.version_info < case.since:
        pytest.skip("syntax of a later Python")
    check(case, cell_names(case.source))


@pytest.mark.parametrize("case", CELLS, ids=lambda case: case.name)
def test_cells_with_magics(case):
    transform = TransformerManager().transform_cell
    found = names_of(ast.parse(transform(case.source)), transform)
    check(case, found, unasked={"get_ipython"})


DEEP = {
    "sum": "x = " + " + ".join(f"a{n}" for n in range(2000)),
    "elif": "if c: y = 0\n" + "".join(f"elif a{n}: y = {n}\n" for n in range(600)),
    "calls": "x = q" + "".join(f".m(a{n})" for n in range(450)),
    "conditions": "x = " + "".join(f"a{n} if b{n} else (" for n in range(90)) + "0" + ")" * 90,
    "functions": "".join(f"def f{n}(): return f{n - 1}() + a{n}\n" for n in range(1500))
    + "f1499()",
}


@pytest.mark.parametrize("source", DEEP.values(), ids=DEEP)
def test_deep_code_is_followed(source):
    found = cell_names(source)
    assert {"a0", "a20", "a80"} <= found.reads


def test_code_too_deep_to_follow_reads_all_that_it_mentions():
    source = "y = k\nx = " + "lambda: " * 60 + "y + z\nimport m\nn += 1"
    limit = sys.getrecursionlimit()
    tree = ast.parse(source)
    frame, depth = sys._getframe(), 0
    while frame:
        frame, depth = frame.f_back, depth + 1
    sys.setrecursionlimit(depth + 60)
    try:
        found = names_of(tree)
    finally:
        sys.setrecursionlimit(limit)
    assert found.reads == {"k", "y", "z", "n"}
    assert found.writes == {"x", "y", "m", "n"}
    assert (found.sure, found.imports) == (frozenset(), {"m"})


def calls_for(loops):
    """How many calls it takes to read a function within so many loops."""
    head = "".join(f"{' ' * n}for i{n} in s:\n" for n in range(loops))
    source = f"{head}{' ' * loops}def f(): return q"
    calls, before = 0, sys.getprofile()

    def heard(_frame, event, _argument):
        nonlocal calls
        calls += event == "call"

    sys.setprofile(heard)
    try:
        found = cell_names(source)
    finally:
        sys.setprofile(before)
    assert found.reads == {"s", "q"}
    return calls


def test_nested_loops_that_define_are_quick():
    """Twice as many loops take some ten times as many calls, and not hundreds."""
    assert calls_for(18) < 30 * calls_for(9)


def test_what_is_surely_bound():
    found = cell_names("a = 1\nif c: b = 2\nfor i in x: d = 1\nwith open(f): e = 1")
    assert found.sure == {"a", "e"}
    assert {"a", "b", "d", "e", "i"} == found.writes


def test_a_long_cell_is_quick_enough_to_read():
    source = "\n".join(
        f"v{i} = f{i}(v{i - 1}) if v{i - 1} else [g(k) for k in s]" for i in range(1, 400)
    )
    found = cell_names(source)
    assert {"v0", "s", "g", "f1"} <= found.reads
