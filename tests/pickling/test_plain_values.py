"""`trust=values`: what comes back as it was, and what others may send instead."""

from __future__ import annotations

import builtins
import collections
import os
import pickle
import struct
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from later import Later, needs

from skyward_nb.pickling.payload import pack, pack_plain, unpack
from skyward_nb.pickling.pickle_scan import NotPlain
from skyward_nb.protocol.message_parts import Packed
from skyward_nb.store.blobs import BlobStore, digest_of
from skyward_nb.words.errors import PayloadError

if TYPE_CHECKING:
    import numpy as np
else:
    np = Later("numpy")
pd, pa, torch = map(Later, ("pandas", "pyarrow", "torch"))
needs_numpy = needs("numpy")


@pytest.fixture
def store(tmp_path: Path) -> BlobStore:
    return BlobStore(tmp_path / "store")


def back(value: object, store: BlobStore) -> Any:
    return unpack(pack_plain("x", value).stow(store), store, only_values=True)


PLAIN = [
    None, True, -(10**50), 2.5, 3 - 4j, "text", b"bytes", bytearray(b"b"), [1, [2]], (1, (2,)),
    {"a": {1, 2}, 3: frozenset({4})}, collections.OrderedDict(b=1, a=[2]),
]  # fmt: skip


@pytest.mark.parametrize("value", PLAIN, ids=str)
def test_numbers_text_and_containers_come_back_as_they_were(
    value: object, store: BlobStore
) -> None:
    got = back(value, store)
    assert got == value
    assert type(got) is type(value)


ARRAYS: list[Callable[[], np.ndarray[Any, Any]]] = [
    lambda: np.arange(12.0).reshape(3, 4),
    lambda: np.arange(12).reshape(3, 4).T,
    lambda: np.arange(100_000, dtype=">i2")[::3],
    lambda: np.array(7),
    lambda: np.zeros((0, 3), complex),
    lambda: np.array(["ä", "bc"]),
    lambda: np.array([b"", b"xy"]),
    lambda: np.array([b"", b""], "S0"),
    lambda: np.zeros(3, "U0"),
    lambda: np.array([True, False]),
    lambda: np.array(["2024-01-02", "NaT"], "M8[D]"),
    lambda: np.array([1, 2], "m8[25us]"),
    lambda: np.array([(1, 2.0, "c")], [("a", "i1"), ("b", "<f8", (2,)), ("c", "U1")]),
    lambda: np.array([(1, 2)], np.dtype([("a", "i1"), ("b", "f8")], align=True)),
    lambda: np.array([None, "text", 1.5, np.float32(2)], object).reshape(2, 2),
]


@needs_numpy
@pytest.mark.parametrize("made", ARRAYS)
def test_arrays_come_back_as_they_were(
    made: Callable[[], np.ndarray[Any, Any]], store: BlobStore
) -> None:
    array = made()
    got = back({"of": [array]}, store)["of"][0]
    assert got.dtype.descr == array.dtype.descr
    assert repr(got.tolist()) == repr(array.tolist())
    assert got.shape == array.shape


@needs_numpy
def test_scalars_and_what_is_shared_come_back(store: BlobStore) -> None:
    for scalar in (np.float64(1.5), np.int8(-3), np.bool_(True), np.str_("s"), np.datetime64("2024", "Y")):  # fmt: skip
        got = back(scalar, store)
        assert got == scalar
        assert type(got) is type(scalar)
    array = np.ones(3)
    first, second = back([array, array], store)
    assert first is second
    first[:] = 2


@needs("torch")
def test_tensors_come_back_as_they_were(store: BlobStore) -> None:
    for dtype in (torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.bool, torch.complex64, torch.int64):  # fmt: skip
        tensor = torch.ones(4, 3).to(dtype)[:, 1:]
        got = back(tensor, store)
        assert (got.dtype, got.shape) == (dtype, tensor.shape)
        assert torch.equal(got.to(torch.complex64), tensor.to(torch.complex64))
    model = torch.nn.Linear(2, 3)
    state = back(model.state_dict(), store)
    model.load_state_dict(state)
    parameter = back(model.weight, store)
    assert isinstance(parameter, torch.nn.Parameter)
    assert parameter.requires_grad
    assert back(torch.tensor(3), store) == 3
    assert back(torch.empty(0, 2), store).shape == (0, 2)


@needs("pandas", "pyarrow")
def test_tables_come_back_as_they_were(store: BlobStore) -> None:
    stamps = pd.date_range("2024-03-30", periods=3, freq="12h", tz="Europe/Berlin")
    frame = pd.DataFrame(
        {
            "n": [1, 2, 3],
            "x": [1.5, None, 3],
            "text": ["a", None, "ü"],
            "kind": pd.Categorical(["p", "q", None], ["q", "p"], ordered=True),
            "whole": pd.array([1, None, 3], "Int64"),
            "flag": pd.array([True, None, False], "boolean"),
            "at": stamps,
            "naive": stamps.tz_localize(None),
        }
    )
    pd.testing.assert_frame_equal(back(frame, store), frame)
    deep = frame.set_index(["n", "kind"])
    pd.testing.assert_frame_equal(back(deep, store), deep)
    twice = frame[["n", "n"]]
    pd.testing.assert_frame_equal(back(twice, store), twice)
    timed = frame.set_index("at")["x"]
    pd.testing.assert_series_equal(back(timed, store), timed)
    weeks = pd.date_range("2024", periods=3, freq="2W-MON")
    pd.testing.assert_index_equal(back(weeks, store), weeks)
    assert back(weeks, store).freq == weeks.freq
    assert back(pd.DataFrame(), store).empty
    table = pa.table({"a": [1, None], "b": [["x"], []]})
    assert back(table, store) == table
    assert back(table["a"], store) == table["a"]
    assert back(pa.array([1, 2]), store) == pa.array([1, 2])


class Own:
    pass


OTHERS: list[Any] = [
    (Own, "x[1]"),
    (lambda: print, "x[1]"),
    (lambda: {"deep": [ValueError("v")]}, "x[1]['deep'][0]"),
    pytest.param(lambda: np.ma.masked_array([1]), "x[1]", marks=needs_numpy),
    pytest.param(lambda: np.dtype("f8"), "x[1]", marks=needs_numpy),
    pytest.param(lambda: np.array([Own()], object), "x[1]", marks=needs_numpy),
    pytest.param(lambda: holds_itself(), "x[1]", marks=needs_numpy),
    pytest.param(
        lambda: pd.Series(pd.period_range("2024", periods=2)), "x[1]", marks=needs("pandas")
    ),
    pytest.param(
        lambda: pa.table(
            {"a": pa.ExtensionArray.from_storage(pa.uuid(), pa.array([bytes(16)], pa.binary(16)))}
        ),
        "x[1]",
        marks=needs("pyarrow"),
    ),
]


def holds_itself() -> object:
    array = np.empty(2, object)
    array[0] = [array]
    return array


@pytest.mark.parametrize(("made", "path"), OTHERS)
def test_what_is_no_value_is_named_where_it_is_packed(
    made: Callable[[], object], path: str
) -> None:
    with pytest.raises(PayloadError, match="trust=values") as caught:
        pack_plain("x", [0, made()])
    assert caught.value.path.startswith(path)


# ── attacks: what another's rank may send ───────────────────────────────────────────────


def sent(pickled: bytes, *buffers: bytes) -> Packed:
    """A packed value as an attacker makes it, with the digest that it has to have."""
    pieces = [pickled, *buffers]
    data = struct.pack(f"<I{len(pieces)}Q", len(pieces), *map(len, pieces))
    for piece in pieces:
        data += bytes(-len(data) % 64) + piece
    return Packed(digest_of([data]), len(data), data)


class Runs:
    """Runs code where its pickle is read, in one of the ways that there are."""

    def __init__(self, *how: Any) -> None:
        self.how = how

    def __reduce__(self) -> tuple[Any, ...]:
        return self.how


GLOBALS = [
    pickle.dumps(Runs(os.system, ("touch BROKEN",))),
    pickle.dumps(Runs(os.system, ("touch BROKEN",)), 0),
    pickle.dumps([1, {"a": Runs(builtins.eval, ("open('BROKEN','w')",))}], 2),
    b"cos\nsystem\n(S'touch BROKEN'\ntR.",
    b"(S'touch BROKEN'\nios\nsystem\n.",
    b"(cos\nsystem\nS'touch BROKEN'\no.",
    b"\x80\x05\x8c\x02os\x94\x8c\x06system\x94\x93\x94\x8c\x0ctouch BROKEN\x94\x85R.",
    # an opcode that pickletools reads, behind a frame that says that it is longer
    b"\x80\x05\x95\xff\x00\x00\x00\x00\x00\x00\x00cos\nsystem\n(S'touch BROKEN'\ntR.",
    b"\x80\x02\x82\x01.",  # a class by its number
    *(pickle.dumps(made) for made in ((np.dtype("f8"), np.ones(3)) if find_spec("numpy") else ())),
    pickle.dumps(collections.OrderedDict(a=1)),
    pickle.dumps(Own()),
    b"Pos.system\n.",
    b"\x80\x05}\x94}b.",  # sets the state of a dictionary
    b"\x80\x05Nr\x00\x00\x00\x04.",  # has a memo of 2**26 places
]


@pytest.mark.parametrize("pickled", GLOBALS)
def test_a_pickle_that_names_or_calls_something_is_refused_unread(
    pickled: bytes, store: BlobStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(NotPlain, match=r"trust=values"):
        unpack(sent(pickled), store, only_values=True)
    assert not (tmp_path / "BROKEN").exists()


BUSY = {
    "an argument across the end of a frame": b"\x80\x05\x95" + struct.pack("<Q", 4) + b"]B\x06\x00" + bytes(4) + b"0N}b.",
    "a frame in a frame": b"\x80\x05\x95" + struct.pack("<Q", 11) + b"\x95" + struct.pack("<Q", 1) + b"N.",
    "a deep tuple as a key": b"\x80\x05})" + b"\x85" * 1_000_000 + b"Ns.",
    "a deep tuple": b"\x80\x05)" + b"\x85" * 1_000_000 + b".",
    "shared tuples in a set": b"\x80\x05\x8f()" + b"".join(b"\x94h%c\x86" % at for at in range(60)) + b"\x90.",
    "one key again and again": b"\x80\x05(" + b"N" * 50_000 + b"t\x940}(" + b"h\x00N" * 50_000 + b"u.",
}  # fmt: skip


@pytest.mark.parametrize("pickled", BUSY.values(), ids=BUSY)
def test_a_pickle_that_misleads_the_scan_or_takes_for_ever_is_refused_unread(
    pickled: bytes, store: BlobStore
) -> None:
    with pytest.raises(NotPlain, match=r"frame|nested|keys"):
        unpack(sent(pickled), store, only_values=True)


def test_ordinary_keys_and_tuples_are_taken(store: BlobStore) -> None:
    deep: Any = ()
    for _ in range(50):
        deep = (deep,)
    key = ("layer", ("weight", 1), frozenset({(1, 2)}))
    value = [{key: number} for number in range(1000)]
    many = tuple(range(100_000))
    assert back([value, deep, (many, many)], store) == [value, deep, (many, many)]


@needs("pyarrow")
def test_arrow_calls_no_class_that_is_registered_for_a_type(store: BlobStore) -> None:
    sink = pa.BufferOutputStream()
    kind = pa.field(
        "a", pa.int8(), metadata={"ARROW:extension:name": "any", "ARROW:extension:metadata": ""}
    )
    with pa.ipc.new_stream(sink, pa.schema([kind])):
        pass
    with pytest.raises(NotPlain, match="extension"):
        unpack(
            sent(forged("arrow", 0, "Table", sink.getvalue().to_pybytes())), store, only_values=True
        )


def test_what_the_ordinary_pickler_makes_is_refused_by_name(store: BlobStore) -> None:
    packed = pack("x", Runs(os.system, ("true",))).stow(store)
    with pytest.raises(NotPlain, match=r"it names posix\.system: trust=values takes"):
        unpack(packed, store, only_values=True)


class Forger(pickle.Pickler):
    """Writes what it is given as the parts of an array or a table."""

    def persistent_id(self, obj: object) -> Any:
        return obj.how[0] if type(obj) is Runs else None


def forged(*parts: object) -> bytes:
    import io

    file = io.BytesIO()
    Forger(file, 5).dump(Runs(parts[0] if len(parts) == 1 else parts))
    return file.getvalue()


FORGED: list[tuple[Any, ...]] = [
    (),
    ("array",),
    ("array", 0),
    (["array"], 0, "<f8", (1,), "C", bytes(8)),
    ("system", 0, "true"),
    ("again", 7),
    ("array", 0, "|O", (1,), "C", bytes(8)),
    ("array", 0, [("a", "|O")], (1,), "C", bytes(8)),
    ("array", 0, [("a", [("b", "O8")])], (1,), "C", bytes(8)),
    ("array", 0, "f8,O", (1,), "C", bytes(16)),
    ("array", 0, "<f8", (-1,), "C", bytes(8)),
    ("array", 0, "<f8", (1 << 40,), "C", bytes(8)),
    ("array", 0, "<f8", [1], "C", bytes(8)),
    ("array", 0, "<f8", (1,), "C", "text"),
    ("tensor", 0, "load", (1,), False, False, bytes(4)),
    ("array", 0, "<f8", (3000,), "C", b""),
    ("tensor", 0, "uint8", (3000,), False, False, b""),
    ("itself", 0, ((1,),)),
    ("scalar", 0, [((1,),)]),
    ("scalar", 0, Runs(("objects", 1, (1,), [(1,)]))),
    ("tensor", 0, "float32", (99,), False, False, bytes(4)),
    ("tensor", 0, "float32", (-1,), False, False, bytes(4)),
    ("series", 0, ("zoned", [0], "ns", "dateutil//etc/passwd"), [0], None),
    ("series", 0, ("zoned", [0], "ns", "../../etc/passwd"), [0], None),
    ("series", 0, ("extension", "object", [1]), [0], None),
    ("series", 0, ("extension", "period[M]", [1]), [0], None),
    ("series", 0, ("category", [5], ["a"], False), [0], None),
    ("frame", 0, [0], ["a", "b"], [("numpy", [1])]),
    ("arrow", 0, "Table", b"no table"),
    # A few bytes that would become as many values as their sender likes.
    ("array", 0, "S0", (10**10,), "C", b""),
    ("array", 0, "V0", (10**10,), "C", b""),
    ("objects", 0, (3,), Runs(("array", 1, "V0", (3,), "C", b""))),
    ("ordered", 0, [(((1,),), 2)]),
    ("series", 0, ("numpy", Runs(("range", 1, 0, 9, 1, None))), None, None),
    ("series", 0, ("extension", "Int64", Runs(("range", 1, 0, 9, 1, None))), None, None),
    ("range", 0, 0, 9, 1, ((1,),)),
    ("levels", 0, [["a"]], [Runs(("range", 1, 0, 9, 1, None))], [None]),
    ("index", 0, ("numpy", Runs(("array", 1, "M8[D]", (1,), "C", bytes(8)))), None, "x()"),
]


@pytest.mark.parametrize("parts", FORGED, ids=lambda parts: repr(parts)[:60])
def test_forged_parts_of_arrays_and_tables_are_refused(
    parts: tuple[Any, ...], store: BlobStore
) -> None:
    with pytest.raises(NotPlain):
        unpack(sent(forged(parts)), store, only_values=True)


@needs_numpy
@pytest.mark.parametrize("kind", ["array", "tensor", "arrow"])
def test_addresses_of_objects_are_no_content_of_arrays(kind: str, store: BlobStore) -> None:
    """Else a forger writes addresses into an array of objects, through an array of its bytes."""
    objects = Runs(("objects", 0, (1,), [1 << 70]))
    parts = {
        "array": ("array", 1, "|u1", (8,), "C", objects),
        "tensor": ("tensor", 1, "uint8", (8,), False, False, objects),
        "arrow": ("arrow", 1, "Table", objects),
    }
    with pytest.raises(NotPlain, match="not bytes"):
        unpack(sent(forged(*parts[kind])), store, only_values=True)


@needs_numpy
def test_parts_as_a_rank_sends_them_are_taken(store: BlobStore) -> None:
    """What the forgeries above differ from."""
    good = ("array", 0, "<f8", (1,), "C", bytes(8))
    assert unpack(sent(forged(good)), store, only_values=True).tolist() == [0.0]


def test_damaged_tables_of_sizes_and_pickles_are_refused(store: BlobStore) -> None:
    whole = pickle.dumps([1, "text", 2.5], 5)
    for cut in range(len(whole)):
        with pytest.raises(NotPlain):
            unpack(sent(whole[:cut]), store, only_values=True)
    for pickled in (
        b"\x80\x05h\x07.",
        b"\x80\x05}]Ns.",
        b"\x80\x05\x97.",
        b"\x80\x05\x95" + b"\xff" * 8 + b"N.",
    ):
        with pytest.raises(NotPlain):
            unpack(sent(pickled), store, only_values=True)
    for data in (b"", bytes(4), b"\xff" * 64, struct.pack("<II", 1, 0)):
        packed = Packed(digest_of([data]), len(data), data)
        with pytest.raises(NotPlain):
            unpack(packed, store, only_values=True)
