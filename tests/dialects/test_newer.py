"""The programs of the newer dialect, as a person runs them; nothing is left."""

from __future__ import annotations

import pytest
from absent import BESIDE_KERAS
from dialects.program import Program, falls, names, numbers, play, ranks_of

PROGRAMS = {
    "thirty_lines.py": Program(
        needs=("torch",),
        holds=lambda out: min(numbers(out, "accuracy")) > 0.95,
        tells="60/60 · 100%",
    ),
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
        lacks=("tensorflow", *BESIDE_KERAS),
        holds=lambda out: falls("loss", 0.3)(out) and numbers(out, "loss")[2] > 0.9,
        alike="plugins/test_keras.py::test_ranks_train_one_model",
    ),
    "newer/keras_on_torch.py": Program(
        says=(
            "losses agree: True",
            "weights agree: True",
            "as one rank with the whole batch: True",
        ),
        needs=("keras", "torch"),
        lacks=("tensorflow", "jax", *BESIDE_KERAS),
        holds=falls("loss", 0.6),
        alike="plugins/test_keras_together.py::test_ranks_train_as_one_rank_does_with_the_whole_batch",
    ),
    "newer/jax_arrays.py": Program(
        says=("weights: [1.0, -2.0, 3.0, -4.0]", "[rank 1] process 1 of 2, 2 devices"),
        needs=("jax",),
        holds=lambda out: len(set(numbers(out, "losses:"))) == 1,
        alike="sources/test_jax_programs.py::test_one_computation_over_a_mesh_of_all_devices",
    ),
    "newer/jax_mesh.py": Program(
        says=(
            "part of up: (4, 16)",
            "losses agree: True",
            "weights agree: True",
            "whole on the head alone: True",
        ),
        needs=("jax",),
        holds=falls("loss:", 0.3),
        alike="runtime/test_jax_parallel.py::test_accumulated_gradients_are_those_of_the_large_batch",
    ),
    "newer/tensorflow_loop.py": Program(
        says=(
            "rank 0: 2 replicas, loss 0.00000, weights [1.0, -2.0, 3.0, -4.0]",
            "rank 1: 2 replicas, loss 0.00000, weights [1.0, -2.0, 3.0, -4.0]",
        ),
        needs=("tensorflow",),
        lacks=("jax", *BESIDE_KERAS),
        alike="plugins/test_tensorflow.py::test_a_loop_of_ones_own_trains_as_one_process_does_on_the_whole_batch",
    ),
    "newer/hugging_face.py": Program(
        says=("rank 0 of 2: 64 steps, loss", "rank 1 of 2: 64 steps, loss"),
        needs=("transformers", "datasets", "accelerate", "torch"),
        holds=lambda out: numbers(out, "rank 0") == numbers(out, "rank 1") < [0.6],
        alike="plugins/test_huggingface.py::test_trainer_sees_all_processes_and_trains_as_one_process_does",
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
        alike="sources/test_torch_programs.py::test_the_sampler_in_a_loader_of_ones_own",
    ),
    "newer/head_only_io.py": Program(
        says=(
            "[rank 0] rank 0 wrote checkpoint.pt",
            "read: [6.0, 6.0, 6.0]",
            "files: ['checkpoint.pt']",
        ),
        needs=("torch",),
        alike="sources/test_torch_programs.py::test_the_head_saves_and_speaks_for_all",
    ),
    "newer/output_control.py": Program(
        says=("nobody: values [0, 1, 2, 3]",),
        holds=lambda out: (
            [ranks_of(out, word) for word in ("everyone out", "head out", "some out", "nobody")]
            == [{0, 1, 2, 3}, {0}, {1, 3}, set()]
        ),
        tells="[rank 2] some err 2",
        alike="functions/test_function_marks.py::test_ranks_whose_output_is_shown",
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
            "refused: mig=3g.41gb is not a profile of A100",
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
        alike="functions/test_running.py::test_calls_side_by_side_run_on_the_ranks_that_are_meant",
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
        alike="functions/test_compute.py::test_a_future_that_runs_is_cancelled_on_its_rank",
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
        alike="functions/test_running.py::test_of_what_is_awaited_together_one_that_fails_stops_the_others",
    ),
    "newer/many_items.py": Program(
        says=(
            "longest below 2,001: 181 steps from 1161",
            "as here: True",
            "two arguments: [1024, 27]",
            "failed: division by zero; item 2 of the map",
        ),
        alike="functions/test_compute.py::test_map_keeps_the_order_and_says_which_item_failed",
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
        alike="functions/test_elsewhere.py::test_a_map_and_generators",
    ),
}


@pytest.mark.timeout(240)
@pytest.mark.parametrize("name", names(PROGRAMS))
def test_a_program_says_what_it_is_to_say_and_leaves_nothing(no_leaks, tmp_path, name):
    play(name, PROGRAMS[name], tmp_path)
