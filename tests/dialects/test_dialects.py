"""The programs of both dialects, as a person runs them: each in a `python` of its own, and nothing left."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from scripts import run

HERE = Path(__file__).parent
_NUMBER = r"-?\d+\.\d+(?:e-?\d+)?"


@dataclass(frozen=True)
class Program:
    """What a script `needs`, and what it is to print: these lines, or what `holds` of all of it."""

    says: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    holds: Callable[[str], bool] = lambda _: True
    tells: str = ""
    """What is on standard error."""
    alike: str = ""
    """A program that plays the same path in less time: this one runs with `--all` alone."""


def numbers(out: str, after: str) -> list[float]:
    """The numbers of the line that begins so."""
    line = next(line for line in out.splitlines() if line.startswith(after))
    return [float(number) for number in re.findall(_NUMBER, line.removeprefix(after))]


def ranks_of(out: str, word: str) -> set[int]:
    """The ranks of which a line of output with this word is shown."""
    return {int(rank) for rank in re.findall(rf"^\[rank (\d+)\] .*{word}", out, re.MULTILINE)}


def falls(after: str, below: float) -> Callable[[str], bool]:
    """Whether the loss in the line that begins so falls, at last below a bound."""

    def holds(out: str) -> bool:
        first, last, *_ = numbers(out, after)
        return last < first and last < below

    return holds


PROGRAMS = {
    "thirty_lines.py": Program(
        needs=("torch",),
        holds=lambda out: min(numbers(out, "accuracy")) > 0.95,
        tells="60/60 · 100%",
    ),
    # ── the newer dialect ───────────────────────────────────────────────────────────────
    "newer/ddp_training.py": Program(
        says=("weights: [-0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]", "the same on every rank: True"),
        needs=("torch",),
        holds=lambda out: max(numbers(out, "losses: ")) < 0.001,
        tells="finished in",
        alike="thirty_lines.py",
    ),
    "newer/keras_on_jax.py": Program(
        says=("losses agree: True", "weights agree: True", "jax with 2 devices of 2 ranks"),
        needs=("keras", "jax"),
        holds=lambda out: falls("loss", 0.3)(out) and numbers(out, "loss")[2] > 0.9,
    ),
    "newer/jax_arrays.py": Program(
        says=("weights: [1.0, -2.0, 3.0, -4.0]", "[rank 1] process 1 of 2, 2 devices"),
        needs=("jax",),
        holds=lambda out: len(set(numbers(out, "losses:"))) == 1,
    ),
    "newer/tensorflow_loop.py": Program(
        says=(
            "rank 0: 2 replicas, loss 0.00000, weights [1.0, -2.0, 3.0, -4.0]",
            "rank 1: 2 replicas, loss 0.00000, weights [1.0, -2.0, 3.0, -4.0]",
        ),
        needs=("tensorflow",),
    ),
    "newer/hugging_face.py": Program(
        says=("rank 0 of 2: 64 steps, loss", "rank 1 of 2: 64 steps, loss"),
        needs=("transformers", "datasets", "accelerate", "torch"),
        holds=lambda out: numbers(out, "rank 0") == numbers(out, "rank 1") < [0.6],
        alike="older/hugging_face.py",
    ),
    "newer/sharding.py": Program(
        says=(
            "refused: sky.shard: arrays of unequal length (3, 2) cannot stay aligned",
            "kinds: ndarray, list, tuple",
            "sizes: [3, 3, 2, 2], with drop_last [2, 2, 2, 2]",
            "together: [0, 10, 20, 30, 40, 50, 60, 70, 80, 90]",
            "the same again: True",
        ),
        needs=("numpy",),
    ),
    "newer/sampler.py": Program(
        says=(
            "batches on each rank: [4, 4, 4, 4]",
            "all items seen: True, 104 in all",
            "another order in the second epoch: True",
        ),
        needs=("torch",),
        alike="older/sampler.py",
    ),
    "newer/head_only_io.py": Program(
        says=(
            "[rank 0] rank 0 wrote checkpoint.pt",
            "read: [6.0, 6.0, 6.0]",
            "files: ['checkpoint.pt']",
        ),
        needs=("torch",),
    ),
    "newer/output_control.py": Program(
        says=(
            "nobody: values [0, 1, 2, 3]",
            "refused: @sky.silent stands below @sky.function, next to the function itself:",
        ),
        holds=lambda out: (
            [ranks_of(out, word) for word in ("everyone out", "head out", "some out", "nobody")]
            == [{0, 1, 2, 3}, {0}, {1, 3}, set()]
        ),
        tells="[rank 2] some err 2",
    ),
    "newer/standalone.py": Program(
        says=(
            *(f"node {node} of 3: rank 0 of 1, head False" for node in range(3)),
            "each has all of it: [[1, 2, 3, 4], [1, 2, 3, 4], [1, 2, 3, 4]]",
            "spread by hand: [0, 1, 4, 9, 16, 25]",
            "refused: framework=torch joins all ranks of a pool",
        ),
    ),
    "newer/mig_slices.py": Program(
        says=(
            "A100 mig=3g.40gb: 2 ranks",
            "H100 mig=1g.10gb: 7 ranks",
            "A100:2 mig=2g.20gb: 6 ranks",
            "places: [(0, 0, 2, 4), (0, 1, 2, 4), (1, 0, 2, 4), (1, 1, 2, 4)]",
            "refused: accelerator=A100:0.5: a part of one is not had like this",
            "refused: mig=3g.41gb is no profile of A100",
            "refused: mig=3g.40gb needs accelerator=",
            "refused: accelerator=A1O0: there is no A1O0",
        ),
    ),
    "newer/parallel.py": Program(
        says=(
            "one: a on 0",
            "every: ['b on 0', 'b on 1', 'b on 2', 'b on 3']",
            "side by side: abc",
            "spread over nodes: [0, 1, 2, 3]",
            "ended: quick\nended: mid\nended: slow",
            "a node: n on 2",
            "here: h on 0",
        ),
    ),
    "newer/futures.py": Program(
        says=(
            "in order: [0, 1, 2, 3]",
            "as they end: [0, 1, 2, 3]",
            "failed: ValueError('an unlucky number')",
            "cancelled: True",
            "the rank is free: 5",
            "both: (1, 2)",
            "timeout: after 0.5 s rank",
        ),
    ),
    "newer/async_code.py": Program(
        says=(
            "every: ['a', 'a']",
            "one: b",
            "both: ('c', 'd')",
            "gathered: ['e', 'f']",
            "ended: soon\nended: late",
            "cancelled, and the ranks are free: ['g', 'g']",
            "the loop went on: True",
        ),
    ),
    "newer/many_items.py": Program(
        says=(
            "longest below 2,001: 181 steps from 1161",
            "as here: True",
            "two arguments: [1024, 27]",
            "failed: division by zero; item 2 of the map",
        ),
    ),
    "newer/generators.py": Program(
        says=(
            "streamed: [0, 1, 4, 9, 16]",
            "on every rank: [[0, 1, 4], [0, 1, 4]]",
            "left at: 64",
            "came: 1\nthen: after the first",
            "sent: [1.0, 1.5, 3.0]",
            "fed from here: 5050",
        ),
    ),
    # ── the older dialect ───────────────────────────────────────────────────────────────
    "older/ddp_training.py": Program(
        says=("[rank 0] accuracy", "on 2 ranks", "ranks agree: True", "it learned: True"),
        needs=("torch",),
        holds=lambda out: ranks_of(out, "accuracy") == {0},
        tells="Ranks are ready for torch",
    ),
    "older/keras_on_jax.py": Program(
        says=("backend: jax", "losses agree: True", "[rank 0] Epoch 10/10"),
        needs=("keras", "jax"),
        holds=lambda out: falls("loss", 0.4)(out) and ranks_of(out, "Epoch") == {0},
        alike="newer/keras_on_jax.py",
    ),
    "older/jax_devices.py": Program(
        says=tuple(f"rank {rank}: 3 processes, 3 devices, sum 138" for rank in range(3)),
        needs=("jax",),
        alike="newer/jax_arrays.py",
    ),
    "older/tensorflow_keras.py": Program(
        says=("worker 0 of 2: loss", "worker 1 of 2: loss", "losses agree: True"),
        needs=("tensorflow", "tf_keras"),
        holds=falls("worker 0 of 2:", 0.01),
        alike="newer/tensorflow_loop.py",
    ),
    "older/hugging_face.py": Program(
        says=("rank 0 of 2: loss", "rank 1 of 2: loss", "token True"),
        needs=("transformers", "accelerate", "torch"),
        holds=lambda out: (
            falls("rank 0", 1.0)(out) and numbers(out, "rank 0") == numbers(out, "rank 1")
        ),
    ),
    "older/sharding.py": Program(
        says=(
            "sum of parts: 499500 of 499500",
            "rank r of n has r::n: [[0, 4], [1, 5], [2, 6], [3, 7]]",
            "aligned: True, DataFrame",
        ),
        needs=("numpy", "pandas"),
    ),
    "older/sampler.py": Program(
        says=(
            "padded: [(4, 46.0), (4, 46.0), (4, 46.0)]",
            "dropped: [(3, 36.0), (3, 36.0), (3, 36.0)]",
        ),
        needs=("torch",),
    ),
    "older/head_only_io.py": Program(
        says=("returned: ['report.json', None, None]", "written: {'nodes': 3, 'by': 0}"),
    ),
    "older/output_control.py": Program(
        says=("raised: errors arrive anyway",),
        holds=lambda out: ranks_of(out, "stdout") == {0} and "not to be seen" not in out,
        tells="[rank 1] one line of stderr\n",
    ),
    "older/standalone.py": Program(
        says=("worlds of: [2]", "nodes used: ['node 0', 'node 1']", "best rate: 0.45"),
    ),
    "older/mig_slices.py": Program(
        says=(
            "A100 of NVIDIA: 80 GB",
            "3g.40gb: 2, 2g.20gb: 3",
            "A100-80GB: A100-80GB, 1 ranks",
            "NVIDIA.A100: A100, 1 ranks",
            "A100:4: A100:4, 4 ranks",
            "slots: [0, 1, 2]",
            "refused: accelerator=A100:0.5: a part of one is not had like this",
        ),
    ),
    "older/parallel_broadcast.py": Program(
        says=(
            "one: [3, 4, 5]",
            "parallel: 4 40",
            "gathered: (1.0, 2.0, 3.0)",
            "broadcast: [0, 1, 2]",
            "streamed: [1.0, 2.0]",
            "here: 2",
        ),
    ),
}


def programs():
    for name, program in PROGRAMS.items():
        yield pytest.param(name, marks=[pytest.mark.extensive] * bool(program.alike))


@pytest.mark.timeout(240)
@pytest.mark.parametrize("name", programs())
def test_a_program_says_what_it_is_to_say_and_leaves_nothing(no_leaks, name):
    program = PROGRAMS[name]
    for package in program.needs:
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    ran = run(HERE / name, timeout=200)
    assert ran.returncode == 0, ran.stderr
    for line in program.says:
        assert line in ran.stdout
    assert program.holds(ran.stdout), ran.stdout
    assert program.tells in ran.stderr
    assert "Traceback" not in ran.stderr


def test_every_program_is_run():
    found = {str(path.relative_to(HERE)) for path in HERE.rglob("*.py")}
    assert found - {"test_dialects.py"} == PROGRAMS.keys()


def test_a_program_like_each_that_runs_seldom_is_always_run():
    seldom = [program.alike for program in PROGRAMS.values() if program.alike]
    assert seldom and not any(PROGRAMS[alike].alike for alike in seldom)


def test_thirty_lines_are_thirty_lines():
    lines = (HERE / "thirty_lines.py").read_text().splitlines()
    assert len([line for line in lines if line]) <= 30


@pytest.mark.parametrize(("newer", "older"), [("Compute", "ComputePool"), ("function", "compute")])
def test_both_dialects_mean_the_same(newer, older):
    import skyward_nb as sky

    assert getattr(sky, newer) is getattr(sky, older)


def test_the_readme_shows_the_thirty_lines_as_they_are():
    readme = (HERE.parents[1] / "README.md").read_text()
    assert f"```python\n{(HERE / 'thirty_lines.py').read_text()}```" in readme
