"""What SkyPilot is asked for, and how its answers are read: pure."""

import json

import pytest
from skypilot.fake_sky import FAILED, LAUNCHED, NO_CATALOGUE, NONE, NOT_FOUND, PLAN

import skyward_nb as sky
from skyward_nb.options.arguments import spec_for
from skyward_nb.options.defaults import Default, with_defaults
from skyward_nb.options.option_line import parse
from skyward_nb.options.specs import spec_of
from skyward_nb.providers.skypilot import plan_quoting
from skyward_nb.providers.skypilot.cli_answers import (
    ClusterState,
    LaunchPlan,
    NoAnswer,
    advised,
    chosen_plan,
    cluster_state,
    last_words,
    progress,
    request_id,
    why_gone,
)
from skyward_nb.providers.skypilot.cluster_request import (
    cluster_name,
    dry_run_lines,
    host_names,
    launch_arguments,
    task,
)
from skyward_nb.providers.skypilot.plan_quoting import (
    agreed_price,
    check_price,
    hold,
    quote_from,
    why_too_dear,
)
from skyward_nb.reports.cost_approval import agree, quote_lines
from skyward_nb.words.errors import NotAgreed, NothingFits, OptionError
from skyward_nb.words.spec import PoolSpec


def spec(line):
    return spec_of(PoolSpec(), with_defaults(parse(line, scopes=("pool",)), []).pool)


# ── what is asked ───────────────────────────────────────────────────────────────────────


def test_only_what_was_asked_for_is_passed_on():
    plain = launch_arguments(spec("provider=sky"), "p-1", "t.yaml")
    assert plain == [
        "launch", "--yes", "--detach-run", "--cluster=skyward-p-1", "--down", "--idle-minutes-to-autostop=1",
        "--num-nodes=1", "t.yaml",
    ]  # fmt: skip
    line = (
        "provider=sky infra=gcp/us-central1 nodes=2 accelerator=A100:8 cpus=8+ memory=32 spot=yes"
    )
    words = launch_arguments(spec(line), "p-1", "t.yaml")
    assert words[6:-1] == [
        "--num-nodes=2", "--infra=gcp/us-central1", "--gpus=A100:8", "--cpus=8+", "--memory=32", "--use-spot",
    ]  # fmt: skip
    source = sky.SkyPilot(infra="aws", instance_type="g6.xlarge", image_id="docker:x", disk=200)
    words = launch_arguments(spec_for("default", provider=source), "p-1", "t.yaml")
    assert {"--instance-type=g6.xlarge", "--image-id=docker:x", "--disk-size=200"} <= {*words}


def test_the_task_is_a_keeper_with_a_folder_for_each_machine():
    run = json.loads(task("p-1"))["run"]
    assert run.startswith('exec /bin/sh -c \'set -- "/tmp/.skyward-p-1.$SKYPILOT_NODE_RANK" 90\n')
    assert cluster_name("my_pool-1") == "skyward-my-pool-1"
    assert host_names("c", 3) == ("c", "c-worker1", "c-worker2")
    (_, shown) = dry_run_lines(spec("provider=sky accelerator=L4"))
    assert "--gpus=L4:1" in shown


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("infra=gcp", "infra= is about SkyPilot: it goes with provider=sky"),
        ("provider=sky infra=GCP", "infra=gcp/us-central1"),
        ("provider=sky infra=--gpus", "infra=gcp/us-central1"),
        ("provider=sky spot=auto", "spot=yes, or spot=no"),
        ("provider=sky spot=cheapest", "spot=yes, or spot=no"),
        ("provider=sky region=us-east-1", "with provider=sky it is infra=CLOUD/REGION"),
        ("provider=sky zones=us-east-1a", "infra=CLOUD/REGION/ZONE"),
        ("provider=sky instance_type=g6.xlarge", "sky.SkyPilot(instance_type=...)"),
        ("provider=sky on_preempt=replace", "on_preempt= is about machines that are rented"),
        ("provider=sky max_cost=0", "machines that cost nothing are provider=local"),
        ("provider=sky partition=gpu", "partition= is about Slurm"),
        ("provider=sky hosts=a", "provider=sky knows no hosts="),
    ],
)  # fmt: skip
def test_what_is_refused(line, says):
    with pytest.raises(OptionError) as raised:
        spec(line)
    assert says in str(raised.value)


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        ({"disk": "large"}, "give GB"),
        ({"image_id": "-x"}, "write it as text"),
        ({"instance_type": 3}, "write it as text"),
        ({"infra": "g c p"}, "infra=gcp/us-central1"),
        ({"executable": "/no/such/sky"}, "there is no such program"),
    ],
)
def test_what_python_code_may_not_say(parts, says):
    with pytest.raises(OptionError) as raised:
        spec_for("default", provider=sky.SkyPilot(**parts))
    assert says in str(raised.value)


def test_defaults_about_skypilot_are_for_its_pools_alone():
    known = [Default("infra", "gcp", "here"), Default("max_cost", "4", "here")]
    there = with_defaults(parse("provider=sky", scopes=("pool",)), known).pool
    assert (there.infra, there.max_cost) == ("gcp", 4)
    assert with_defaults(parse("nodes=2", scopes=("pool",)), known).pool.stated == ("nodes",)


# ── its answers ─────────────────────────────────────────────────────────────────────────


def plan(nodes=2):
    found = chosen_plan(PLAN.format(nodes=nodes, s="s", cost=f"{29.39 * nodes:.2f}"))
    assert found is not None
    return found


def test_the_chosen_plan_is_read_from_the_last_table():
    assert plan() == LaunchPlan("GCP (us-central1)", "a2-highgpu-8g", "96", "680", 58.78)
    both = PLAN.format(nodes=1, s="", cost="29.39") + PLAN.format(nodes=1, s="", cost="31.00")
    assert chosen_plan(both).dollars == 31
    assert chosen_plan(PLAN.format(nodes=1, s="", cost="-")).dollars is None
    assert chosen_plan("Cluster launched") is None


def test_a_price_is_agreed_to_as_for_other_rented_machines():
    asked = spec("provider=sky nodes=2 accelerator=A100:8")
    quote = quote_from(plan(), asked)
    assert quote.first == pytest.approx(58.78)
    shown = "\n".join(quote_lines(asked, quote))
    assert "2 × a2-highgpu-8g" in shown
    assert "8 × A100, 96 cpus, 680 GB" in shown
    assert "GCP (us-central1)" in shown
    assert "$58.78 / h" in shown
    with pytest.raises(NotAgreed, match="over confirm_above=5"):
        agree(asked, quote, lambda lines, question: None)
    with pytest.raises(NotAgreed, match="you did not agree"):
        agree(asked, quote, lambda lines, question: "n")
    agree(asked, quote, lambda lines, question: "y")
    agree(spec("provider=sky accelerator=A100:8 yes"), quote, lambda lines, question: None)
    with pytest.raises(NothingFits, match=r"\$29.39 an hour, and max_hourly_cost=20"):
        check_price(spec("provider=sky nodes=2 max_hourly_cost=20"), quote)


def test_the_state_of_a_cluster_is_found_in_its_list():
    said = json.dumps(
        [{"name": "a", "status": "UP", "more": 1}, {"name": "b", "status": "INIT"}], indent=2
    )
    out = f"\x1b[36mRefreshing\x1b[0m\n{said}\n"
    assert cluster_state(out, "b") == ClusterState("b", "INIT")
    assert cluster_state(out, "c") is None
    assert cluster_state("[]\n", "c") is None
    with pytest.raises(NoAnswer, match="the server is not running"):
        cluster_state("the server is not running\n", "a")


def test_why_a_cluster_is_gone_is_said_in_words():
    assert not why_gone(ClusterState("c", "UP"), "c")
    assert why_gone(None, "c") == "SkyPilot has no cluster c any more: it was taken down"
    init = ClusterState("c", "INIT", init_status_reason="1 of 2 nodes terminated")
    assert why_gone(init, "c").endswith(
        "(spot machines are taken back so): 1 of 2 nodes terminated"
    )
    assert "it is stopped" in why_gone(ClusterState("c", "STOPPED"), "c")


def test_progress_leaves_tables_and_hints_out():
    text = PLAN.format(nodes=1, s="", cost="1") + LAUNCHED.format(name="c")
    lines = [said for line in text.splitlines() if (said := progress(line))]
    assert "Launching on GCP us-central1 (us-central1-a)." in lines
    assert "Instances are up." in lines
    assert not any("INFRA" in line or "ssh c" in line or "───" in line for line in lines)


def test_errors_have_skypilots_words_and_what_to_type():
    assert advised(last_words(NONE)).endswith("`sky check` says what each cloud lacks")
    assert "raw.githubusercontent.com" in (said := advised(last_words(NO_CATALOGUE)))
    assert said.endswith("from the internet, and needs a way there")
    assert cluster_state(f"{NOT_FOUND.format(name='c')}[]\n", "c") is None
    said = advised(last_words(FAILED))
    assert "Failed to acquire resources in all zones in us-central1" in said
    assert said.endswith("Another infra=, accelerator=, or spot=no")
    assert request_id("run: \x1b[1msky api cancel 1f2e3d4c\x1b[0m") == "1f2e3d4c"
    assert request_id("nothing") is None


def test_what_was_rented_is_held_against_what_was_planned(monkeypatch):
    monkeypatch.setattr(plan_quoting, "_agreed", {})
    asked = spec("provider=sky nodes=2 accelerator=A100:8 max_hourly_cost=40")
    assert why_too_dear(asked, 58.78) == ""
    hold(asked, quote_from(plan(), asked))
    assert agreed_price(asked) == pytest.approx(58.78)
    assert why_too_dear(asked, 58.78) == ""
    assert "$70.00 an hour, and $58.78 was agreed to" in why_too_dear(asked, 70)
    assert "max_hourly_cost=40" in why_too_dear(asked, 90)
    # Under confirm_above nobody was asked.
    assert why_too_dear(spec("provider=sky nodes=2 accelerator=A100:8 yes"), 70) == ""


def test_a_limit_that_no_price_enforces_is_refused():
    unknown = chosen_plan(PLAN.format(nodes=1, s="", cost="-"))
    for line in ("max_cost=10", "max_hourly_cost=3"):
        asked = spec(f"provider=sky {line}")
        with pytest.raises(NothingFits, match=f"{line} cannot be enforced without one"):
            check_price(asked, quote_from(unknown, asked))
    asked = spec("provider=sky")
    check_price(asked, quote_from(unknown, asked))
