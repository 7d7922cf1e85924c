"""Hugging Face on real ranks: all processes are seen, also after a group was ended; no token is shown."""

from __future__ import annotations

import importlib.util
import json
import os
import textwrap
from pathlib import Path

import pytest
from gpus import on_gpus
from kernels import kernel, ready

from skyward_nb.plugins.huggingface_plugin import PLUGIN
from skyward_nb.providers.folders import runtime_root
from skyward_nb.words.info import InstanceInfo
from skyward_nb.words.spec import PoolSpec

NEEDS = ("torch", "transformers", "accelerate", "datasets")
lacking = [name for name in NEEDS if not importlib.util.find_spec(name)]
needs_it = pytest.mark.skipif(bool(lacking), reason=f"not installed: {', '.join(lacking)}")
TOKEN = "hf_never2bshown"


@pytest.fixture(scope="module")
def notebook():
    with ready(
        "%%sky_remote nodes=2 framework=hf grace=20s\nimport os, tempfile, time, torch\n"
        "import torch.distributed as dist\nfrom accelerate import Accelerator\n"
        "from datasets import Dataset\n"
        "from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments",
        HF_TOKEN=TOKEN,
        HF_HUB_OFFLINE="1",
    ) as running:
        yield running


TRAINS = """
torch.manual_seed(0)
rows = [[(3 * i + j) % 32 for j in range(8)] for i in range(32)]
model = GPT2LMHeadModel(GPT2Config(
    vocab_size=32, n_positions=8, n_embd=16, n_layer=1, n_head=2, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0,
    bos_token_id=0, eos_token_id=0,
))
args = TrainingArguments(
    tempfile.mkdtemp(), max_steps=8, per_device_train_batch_size={size}, report_to=[], save_strategy="no",
    learning_rate=0.01, use_cpu={use_cpu}, disable_tqdm=True, logging_steps=1, seed=3,
)
trainer = Trainer(model, args, train_dataset=Dataset.from_dict(dict(input_ids=rows, labels=rows)))
trainer.train()
losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
"""

ALONE = f"""
import multiprocessing, os

def alone(told):
    from accelerate.state import AcceleratorState
    AcceleratorState._reset_state(True)
    dist.distributed_c10d._world.default_pg = None
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "COMPUTE_POOL"):
        os.environ.pop(name, None)
    told.put(trained())

def trained():
{textwrap.indent(TRAINS.format(size=8, use_cpu=True), "    ")}
    return args.world_size, losses

told = multiprocessing.get_context("fork").SimpleQueue()
process = multiprocessing.get_context("fork").Process(target=alone, args=[told])
process.start()
world, losses = told.get()
process.join()
assert world == 1, world
losses
"""


@needs_it
def test_trainer_sees_all_processes_and_trains_as_one_process_does(notebook):
    ran = notebook.run(
        f"%%sky_remote out=told\n{TRAINS.format(size=4, use_cpu=False)}\n"
        "(args.world_size, args.process_index, losses, sum(p.double().sum().item() for p in model.parameters()))",
        timeout=90,
    )
    assert ran.status == "ok", ran.traceback
    first, second = eval(notebook.run("list(told)").result)
    assert first[:2] == (2, 0)
    assert second[:2] == (2, 1)
    assert first[3] == second[3], "they are one model"
    # One process with batches of eight: what a rank forks, with nothing of a pool about it.
    ran = notebook.run(f"%%sky_remote ranks=0 out=losses\n{ALONE}", timeout=90)
    assert ran.status == "ok", ran.traceback
    (alone,) = eval(notebook.run("list(losses)").result)
    assert len(alone) == len(first[2]) == 8
    assert alone[-1] < alone[0]
    assert max(abs(a - b) for a, b in zip(alone, first[2], strict=True)) < 0.02


@needs_it
def test_accelerator_sees_all_processes(notebook):
    ran = notebook.run(
        "%%sky_remote\naccelerator = Accelerator()\n"
        "accelerator.num_processes, accelerator.gather(torch.ones(1)).tolist(), accelerator.device.type"
    )
    assert ran.result == "[0-1] (2, [1.0, 1.0], 'cpu')", ran.traceback
    # What is kept of a training is what the wrappers hold, and `sky.rejoin` takes those.
    ran = notebook.run(
        "%%sky_remote\nfrom skyward_nb.compat.accelerate_private import unwrapped\n"
        "from skyward_nb.plugins.torch_models import replicas_with_holders\n"
        "inner = torch.nn.Linear(2, 1)\nfast = torch.optim.SGD(inner.parameters(), 0.1)\n"
        "slow = torch.optim.lr_scheduler.LambdaLR(fast, lambda _: 1.0)\n"
        "ddp, *prepared = accelerator.prepare(inner, fast, slow)\n"
        "later = torch.optim.lr_scheduler.ExponentialLR(prepared[0], 1.0)\n"
        "held = [list(map(id, holders)) for model, holders in replicas_with_holders() if model is ddp]\n"
        "held == [list(map(id, (fast, later, slow)))], list(map(unwrapped, prepared)) == [fast, slow]"
    )
    assert ran.result == "[0-1] (True, True)", ran.traceback


@needs_it
def test_a_partial_state_that_is_made_first_sees_all_processes_too(notebook):
    ran = notebook.run(
        "%%sky_remote\nfrom accelerate import PartialState\nfrom accelerate.state import AcceleratorState\n"
        "AcceleratorState._reset_state(True)\nstate = PartialState()\n"
        "with state.split_between_processes([0, 1, 2, 3]) as own: pass\n"
        "len(own), state.num_processes, Accelerator().num_processes"
    )
    assert ran.result == "[0-1] (2, 2, 2)", ran.traceback


@needs_it
def test_accelerates_own_test_script_runs_as_it_is_and_again(notebook):
    for _ in range(2):
        ran = notebook.run(
            "%%sky_remote text=1MB\nfrom accelerate.test_utils.scripts import test_script\n"
            "test_script.main()",
            timeout=100,
        )
        assert ran.status == "ok", ran.traceback
        for said in (
            "Num processes: 2",
            "Distributed environment: DistributedType.MULTI_CPU  Backend: gloo",
            "All rng are properly synched.",
            "Shuffled central dataloader passing.",
            "Training yielded the same results on one CPU or distributed setup with batch split.",
            "**Breakpoint trigger test**",
        ):
            assert said in ran.picture
        # It destroys the group, which is there again for the next cell.
        assert notebook.run("%%sky_remote\ndist.is_initialized()").result == "[0-1] True"


@needs_it
def test_a_script_that_ends_its_training_runs_again(notebook):
    for _ in range(2):
        ran = notebook.run(
            "%%sky_remote\naccelerator = Accelerator()\nm = torch.nn.Linear(2, 1)\n"
            "m, o = accelerator.prepare(m, torch.optim.SGD(m.parameters(), 0.1))\n"
            "accelerator.backward(m(torch.ones(1, 2)).sum()); o.step()\naccelerator.end_training()\n"
            "accelerator.num_processes"
        )
        assert ran.result == "[0-1] 2", ran.traceback


@needs_it
def test_a_script_that_begins_with_a_partial_state_finds_a_group(notebook):
    begins = (
        "%%sky_remote\nfrom accelerate import PartialState\nfrom accelerate.utils import gather\n"
    )
    assert notebook.run(f"{begins}accelerator = Accelerator()").status == "ok"
    for _ in range(2):
        ran = notebook.run(
            f"{begins}state = PartialState()\nstate.wait_for_everyone()\n"
            "total = gather(torch.ones(1)).sum().item()\nstate.destroy_process_group()\n"
            "total, PartialState().num_processes, accelerator.num_processes, dist.is_initialized()"
        )
        assert ran.result == "[0-1] (2.0, 2, 2, False)", ran.traceback


@needs_it
def test_what_accelerate_asks_itself_forms_no_group(notebook):
    ran = notebook.run(
        "%%sky_remote\nfrom accelerate.utils import tqdm\nAccelerator().end_training()\n"
        "list(tqdm(range(1)))\ndist.is_initialized()"
    )
    assert ran.result == "[0-1] False", ran.traceback


def stopped(notebook):
    """Interrupt while one rank waits for the other: a new generation of the same processes."""
    ran = notebook.stopped(
        "%%sky_remote\nif dist.get_rank(): time.sleep(100)\n"
        "begun = dist.all_reduce(torch.ones(1), async_op=True)\nprint('here')\nbegun.wait()"
    )
    assert ran.error[0] == "KeyboardInterrupt"
    assert "formed again" in ran.traceback


@needs_it
def test_an_accelerator_is_good_in_the_next_generation(notebook):
    notebook.run("%%sky_remote\nif not dist.is_initialized(): dist.init_process_group()")
    notebook.run("%%sky_remote\naccelerator = Accelerator(gradient_accumulation_steps=2)")
    stopped(notebook)
    again = (
        "m = torch.nn.Linear(2, 1)\nm, o = accelerator.prepare(m, torch.optim.SGD(m.parameters(), 0.1))\n"
        "accelerator.backward(m(torch.ones(1, 2)).sum())\n"
        "accelerator.num_processes, accelerator.gather(torch.ones(1)).tolist()"
    )
    for before in ("", "accelerator = Accelerator()\n"):
        ran = notebook.run(f"%%sky_remote\n{before}{again}")
        assert ran.result == "[0-1] (2, [1.0, 1.0])", ran.traceback


@needs_it
def test_a_loop_that_was_left_is_not_gone_on_with(notebook):
    left = (
        "%%sky_remote\nfrom accelerate.state import GradientState\naccelerator = Accelerator()\n"
        "data = accelerator.prepare(torch.utils.data.DataLoader(range(8)))\n"
        "steps = iter(data); next(steps); GradientState().in_dataloader"
    )
    assert notebook.run(left).result == "[0-1] True"
    stopped(notebook)
    ran = notebook.run(
        "%%sky_remote\nGradientState().in_dataloader, GradientState().sync_gradients"
    )
    assert ran.result == "[0-1] (False, True)", ran.traceback


@needs_it
def test_what_holds_groups_of_its_own_is_forgotten_with_them(notebook):
    """Accelerate makes such a mesh on GPUs alone, so it is put there."""
    made = (
        "%%sky_remote\nfrom accelerate.state import AcceleratorState\nimport skyward_nb as sky\n"
        "accelerator = Accelerator()\naccelerator.state.device_mesh = sky.mesh()\n"
        "accelerator.torch_device_mesh.size()"
    )
    for _ in range(2):
        assert notebook.run(made).result == "[0-1] 2"
        stopped(notebook)
        ran = notebook.run("%%sky_remote\nAcceleratorState._shared_state == {}")
        assert ran.result == "[0-1] True"


OF_THE_NOTEBOOK = """
import tempfile, torch
from accelerate import Accelerator, PartialState
from transformers import Trainer, TrainerCallback, TrainingArguments

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)
    def forward(self, x, labels):
        logits = self.layer(x)
        return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}

class Sees(TrainerCallback):
    def __init__(self, trainer): self.trainer = trainer

torch.manual_seed(0)
rows = [{"x": torch.randn(4), "labels": torch.tensor(i % 2)} for i in range(32)]
args = TrainingArguments(
    tempfile.mkdtemp(), num_train_epochs=1, per_device_train_batch_size=4, report_to=[], save_strategy="no",
    disable_tqdm=True, seed=3,
)
trainer = Trainer(Net(), args, train_dataset=rows)
trainer.add_callback(Sees(trainer))
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
trained = Trainer(Net(), args, train_dataset=rows[:8])
_ = trained.train(), trained.evaluate(rows)
args.world_size, trained.accelerator.num_processes
"""


@needs_it
def test_a_trainer_of_the_notebook_trains_on_all_ranks_and_comes_home(notebook):
    assert notebook.run(OF_THE_NOTEBOOK).result == "(1, 1)"
    ran = notebook.run(
        "%%sky_remote out=back\n_ = trainer.train()\nseen = trainer.callback_handler.callbacks[-1]\n"
        "told = (\n"
        "    trainer.args.world_size, args is trainer.args, trainer.state.global_step, seen.trainer is trainer,\n"
        "    type(trainer.model_wrapped).__name__, trainer.accelerator.num_processes)\ntrainer, told"
    )
    assert ran.status == "ok", ran.traceback
    told = notebook.run("set(told for _, told in back)").result
    assert told == "{(2, True, 4, True, 'DistributedDataParallel', 2)}"
    home = notebook.run(
        "first, second = [came for came, _ in back]\nweights = first.model.layer.weight\n"
        "(torch.equal(weights, second.model.layer.weight), torch.equal(weights, trainer.model.layer.weight),\n"
        " first.args.world_size, first.accelerator.num_processes, first.model_wrapped is first.model,\n"
        " first.evaluate(rows).keys() >= {'eval_loss'})"
    )
    assert home.result == "(True, False, 1, 1, True, True)", home.traceback


@needs_it
def test_one_that_was_trained_in_the_notebook_goes_on_on_all_ranks(notebook):
    ran = notebook.run(
        "%%sky_remote\nwas = trained.state.is_world_process_zero\n_ = trained.train()\n"
        "total = trained.model.layer.weight.detach().sum().repeat(2)\ndist.all_reduce(total[1:])\n"
        "(type(trained.model_wrapped).__name__, trained.state.global_step, was is (dist.get_rank() == 0),\n"
        " torch.allclose(2 * total[0], total[1]))"
    )
    assert ran.result == "[0-1] ('DistributedDataParallel', 1, True, True)", ran.traceback


@needs_it
def test_arguments_that_come_leave_an_accelerator_as_it_is(notebook):
    notebook.run(
        "mine = Accelerator(gradient_accumulation_steps=4)\n"
        "settings = TrainingArguments(tempfile.mkdtemp(), report_to=[])\nmine = Accelerator(gradient_accumulation_steps=4)"
    )
    ran = notebook.run(
        "%%sky_remote out=back\nprint(mine.num_processes, settings.world_size)\nsettings, trainer"
    )
    assert "[0-1] 2 2" in ran.picture, ran.traceback
    home = "mine.gradient_accumulation_steps, mine.mixed_precision, back[1][0].world_size"
    assert notebook.run(home).result == "(4, 'no', 1)"
    notebook.run("settings = TrainingArguments(settings.output_dir)")
    ran = notebook.run("%%sky_remote\nmine")
    assert "PayloadError: mine: " in ran.traceback and "make it last" in ran.traceback


@needs_it
def test_a_trainer_that_comes_after_an_accelerator_divides_its_loss_as_one_that_is_made_after_it(
    notebook,
):
    notebook.run("mine = Accelerator(gradient_accumulation_steps=4)")
    assert notebook.run("%%sky_remote\nmine.gradient_accumulation_steps").result == "[0-1] 4"
    notebook.run("later = Trainer(Net(), args, train_dataset=rows)")
    steps = "later.accelerator.gradient_accumulation_steps"
    assert (
        notebook.run(f"%%sky_remote\n{steps}").result
        == "[0-1] 1"
        == f"[0-1] {notebook.run(steps).result}"
    )


@needs_it
def test_trainers_of_several_precisions_train_one_after_another_and_come_home(notebook):
    made = notebook.run(
        "def of(**precision):\n"
        "    made = TrainingArguments(tempfile.mkdtemp(), max_steps=1, per_device_train_batch_size=4, report_to=[],\n"
        "        save_strategy='no', disable_tqdm=True, use_cpu=True, **precision)\n"
        "    return Trainer(Net(), made, train_dataset=rows)\n"
        "half = of(bf16=True)\nwhole = of()"
    )
    assert made.status == "ok", made.traceback
    for name, precision in (("half", "bf16"), ("whole", "no"), ("half", "bf16")):
        ran = notebook.run(f"%%sky_remote out=back\n_ = {name}.train()\n{name}")
        assert ran.status == "ok", ran.traceback
        home = notebook.run(
            "back[0].accelerator.mixed_precision, 'forward' in vars(back[0].model), back[0].evaluate(rows).keys() > {'eval_loss'}"
        )
        assert home.result == f"('{precision}', False, True)", home.traceback


@needs_it
def test_an_accelerator_of_another_precision_says_which(notebook):
    forget = "from accelerate.state import AcceleratorState\nAcceleratorState._reset_state(True)\n"
    notebook.run(f"%%sky_remote\n{forget}")
    notebook.run(f"{forget}first = Accelerator()")
    assert notebook.run("%%sky_remote\nfirst.mixed_precision").result == "[0-1] 'no'"
    notebook.run(f"{forget}other = Accelerator(mixed_precision='bf16')")
    ran = notebook.run("%%sky_remote\nother")
    assert "mixed_precision='bf16'" in ran.traceback
    assert "%sky restart" in ran.traceback
    notebook.run(f"{forget}del other, first")


@needs_it
def test_an_accelerator_of_the_notebook_sees_all_processes(notebook):
    notebook.run(
        "accelerator = Accelerator(gradient_accumulation_steps=4, step_scheduler_with_optimizer=False)\n"
        "state = PartialState()"
    )
    ran = notebook.run(
        "%%sky_remote\nm, o = accelerator.prepare(model, optimizer)\n"
        "(type(m).__name__, accelerator.num_processes, accelerator.gradient_accumulation_steps,\n"
        " accelerator.step_scheduler_with_optimizer, state.num_processes, accelerator.state.num_processes)"
    )
    assert ran.result == "[0-1] ('DistributedDataParallel', 2, 4, False, 2, 2)", ran.traceback
    notebook.run(
        "loader = torch.utils.data.DataLoader(rows)\n"
        "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)"
    )
    for name in ("accelerator", "loader"):
        ran = notebook.run(f"%%sky_remote\n{name}")
        assert f"PayloadError: {name}: " in ran.traceback
        assert "call prepare(...) in the cell that ranks run" in ran.traceback
    assert notebook.run("%%sky_remote\ntype(optimizer).__name__").result == "[0-1] 'SGD'"


@needs_it
def test_what_is_imported_for_ranks_starts_no_thread(notebook):
    """What forks must have none; one variable of the plugin sees to it."""
    words = PLUGIN.preload({})
    assert any("=" in word for word in words)
    ran = notebook.run("%%sky_remote out=threads\nlen(os.listdir(f'/proc/{os.getppid()}/task'))")
    assert ran.status == "ok", ran.traceback
    assert notebook.run("list(threads)").result == "[1, 1]"


# ── the token ───────────────────────────────────────────────────────────────────────────


@needs_it
def test_the_token_is_on_the_ranks_and_in_no_words_of_ours(notebook):
    ran = notebook.run(f"%%sky_remote\nos.environ['HF_TOKEN'] == {TOKEN!r}")
    assert ran.result == "[0-1] True"
    other = "other_secret_5"
    said = [
        notebook.run("%sky status"),
        notebook.run(f"%sky config env=HF_TOKEN={other},A=1"),
        notebook.run(f"%sky config env=A=1,HF_TOKEN={other},{other}"),
        notebook.run(f"%%sky_remote env=HF_TOKEN={other},A=1\n1"),
        notebook.run(f"%%sky_remote env=HF_TOKEN={other},nothing\n1"),
        notebook.run("%sky config env="),
        notebook.run("%%sky_remote dry_run\n1"),
        notebook.run("%%sky_remote\nprint('here'); raise ValueError('no token in here')"),
        notebook.run("%sky vars"),
        notebook.run("%sky logs"),
        notebook.run(f"%%sky_remote pool=b framework=none env=WANDB_API_KEY={other}\n1"),
        notebook.run("%sky status"),
        notebook.run("%%sky_remote pool=b env=WANDB_API_KEY=x\n1"),
        notebook.run("%sky restart pool=b"),
    ]
    shown = json.dumps([
        [ran.streams, ran.displays, ran.result, ran.others, ran.live, (ran.error or ())[1:2]]
        for ran in said
    ])  # fmt: skip
    assert "here" in shown
    assert "env=WANDB_API_KEY=***" in shown
    assert "env=HF_TOKEN=***,A=1" in shown
    for secret in (TOKEN, other):
        assert secret not in shown
    # Only what starts a pool's ranks anew has what its env= says, and nobody else may read it.
    where = [
        path
        for root in (runtime_root(), os.environ["SKYWARD_LOG_DIR"])
        for path in Path(root).rglob("*")
        if path.is_file() and any(each.encode() in path.read_bytes() for each in (TOKEN, other))
    ]
    assert [path.name for path in where] == ["pool.json"]
    assert [path.stat().st_mode & 0o777 for path in where] == [0o600]
    assert notebook.run("%sky down pool=b").status == "ok"


def test_where_the_token_comes_from(monkeypatch):
    monkeypatch.setattr("skyward_nb.plugins.huggingface_plugin._logged_in", lambda: "logged-in")
    monkeypatch.delenv("HF_TOKEN", raising=False)
    assert PLUGIN.options(PoolSpec(), "") == {"token": "logged-in"}
    monkeypatch.setenv("HF_TOKEN", "here")
    assert PLUGIN.options(PoolSpec(), "") == {"token": "here"}
    assert PLUGIN.options(PoolSpec(env={"HF_TOKEN": "asked"}), "") == {"token": "asked"}


@needs_it
def test_the_token_of_a_login(monkeypatch, tmp_path):
    from huggingface_hub import constants

    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
    assert PLUGIN.options(PoolSpec(), "") == {}
    (tmp_path / "token").write_text("from-the-login\n")
    assert PLUGIN.options(PoolSpec(), "") == {"token": "from-the-login"}


def test_variables():
    on_cpu = PLUGIN.env(InstanceInfo(), {"token": "t"})
    assert on_cpu == {"ACCELERATE_USE_CPU": "true", "HF_TOKEN": "t"}
    assert PLUGIN.env(InstanceInfo(accelerators=1), {}) == {}
    # Else DDP is given the GPU with the rank's number, which is not there.
    sharing = PLUGIN.env(InstanceInfo(accelerators=1, workers_per_node=2), {})
    assert sharing == {"ACCELERATE_BYPASS_DEVICE_MAP": "true"}


@needs_it
@pytest.mark.gpu
def test_accelerator_and_trainer_on_a_gpu(no_leaks):
    name = on_gpus(1)
    with kernel(HF_HUB_OFFLINE="1") as running:
        body = TRAINS.format(size=4, use_cpu=False)
        ran = running.run(
            f"%%sky_remote accelerator={name} ranks_per_node=2 backend=gloo framework=hf\n"
            "import tempfile, torch\nfrom accelerate import Accelerator\nfrom datasets import Dataset\n"
            "from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments\n"
            f"{body}\nargs.world_size, args.device.type, Accelerator().num_processes, losses[-1] < losses[0]",
            timeout=180,
        )
        assert ran.result == "[0-1] (2, 'cuda', 2, True)", ran.traceback
