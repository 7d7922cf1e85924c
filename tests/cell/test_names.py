"""What a cell reads and writes: a table of named cases. Adding behaviour is adding a row."""

import builtins
from dataclasses import dataclass

import pytest

from skyward_nb.cell.names import cell_names


@dataclass(frozen=True)
class Case:
    name: str
    source: str
    reads: str = ""
    writes: str = ""


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
    Case("delete what the cell made", "x = 1\ndel x\nx", "x", "x"),
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
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_reads_and_writes(case):
    found = cell_names(case.source)
    assert {name for name in found.reads if not hasattr(builtins, name)} == set(case.reads.split())
    if case.writes:
        assert found.writes == set(case.writes.split())


def test_what_is_surely_bound():
    found = cell_names("a = 1\nif c: b = 2\nfor i in x: d = 1\nwith f: e = 1")
    assert found.sure == {"a", "e"}
    assert {"a", "b", "d", "e", "i"} == found.writes


def test_a_long_cell_is_quick_enough_to_read():
    source = "\n".join(
        f"v{i} = f{i}(v{i - 1}) if v{i - 1} else [g(k) for k in s]" for i in range(1, 400)
    )
    found = cell_names(source)
    assert {"v0", "s", "g", "f1"} <= found.reads
