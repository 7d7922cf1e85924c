"""The programs of the older dialect, as a person runs them; nothing is left."""

from __future__ import annotations

import pytest
from dialects.program import Program, falls, names, numbers, play, ranks_of

PROGRAMS = {
    "older/ddp_training.py": Program(
        says=("[rank 0] accuracy", "on 2 ranks", "ranks agree: True", "it learned: True"),
        needs=("torch",),
        holds=lambda out: ranks_of(out, "accuracy") == {0},
        tells="Ranks are ready for torch",
        alike="sources/test_torch_programs.py::test_the_first_program_trains_one_model",
    ),
    "older/keras_on_jax.py": Program(
        says=("backend: jax", "losses agree: True", "[rank 0] Epoch 10/10"),
        needs=("keras", "jax"),
        holds=lambda out: falls("loss", 0.4)(out) and ranks_of(out, "Epoch") == {0},
        alike="plugins/test_keras.py::test_ranks_train_one_model",
    ),
    "older/keras_on_tensorflow.py": Program(
        says=("backend: tensorflow", "losses agree: True", "weights agree: True"),
        needs=("keras", "tensorflow"),
        holds=falls("loss", 0.5),
        alike="plugins/test_keras_together.py::test_ranks_train_as_one_rank_does_with_the_whole_batch",
    ),
    "older/jax_devices.py": Program(
        says=tuple(f"rank {rank}: 3 processes, 3 devices, sum 138" for rank in range(3)),
        needs=("jax",),
        alike="sources/test_jax_programs.py::test_pmap_over_the_devices_of_all_nodes",
    ),
    "older/tensorflow_keras.py": Program(
        says=("worker 0 of 2: loss", "worker 1 of 2: loss", "losses agree: True"),
        needs=("tensorflow", "tf_keras"),
        holds=falls("worker 0 of 2:", 0.01),
        alike="plugins/test_tensorflow.py::test_tf_keras_fits_under_the_strategy_and_its_epochs_are_a_bar",
    ),
    "older/hugging_face.py": Program(
        says=("rank 0 of 2: loss", "rank 1 of 2: loss", "token True"),
        needs=("transformers", "accelerate", "torch"),
        holds=lambda out: (
            falls("rank 0", 1.0)(out) and numbers(out, "rank 0") == numbers(out, "rank 1")
        ),
        alike="plugins/test_huggingface.py::test_accelerator_sees_all_processes",
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
        alike="sources/test_torch_programs.py::test_torchs_own_sampler_is_even_where_the_data_are_not",
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
            "refused: accelerator=A100:0.5: write parts of one in another way",
        ),
        alike="newer/mig_slices.py",
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
        alike="functions/test_running.py::test_calls_side_by_side_run_on_the_ranks_that_are_meant",
    ),
}


@pytest.mark.timeout(240)
@pytest.mark.parametrize("name", names(PROGRAMS))
def test_a_program_says_what_it_is_to_say_and_leaves_nothing(no_leaks, tmp_path, name):
    play(name, PROGRAMS[name], tmp_path)
