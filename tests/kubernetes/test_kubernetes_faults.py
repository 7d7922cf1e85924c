"""What is done where kubectl does not say what it should, or leads to another cluster: without one."""

import asyncio

import pytest

from skyward_nb.bootstrap.remote_shell import ScriptResult
from skyward_nb.providers.far.take_down import EngineFault
from skyward_nb.providers.kubernetes.cluster import ClusterSilent, KubernetesCluster, kubeconfig
from skyward_nb.providers.kubernetes.orphan_jobs import cluster_of
from skyward_nb.providers.kubernetes.pod_machine import line_to
from skyward_nb.providers.kubernetes.pod_records import PodRecord
from skyward_nb.providers.kubernetes.pool_job import PoolJob
from skyward_nb.providers.maker_process import MakerProcess
from skyward_nb.words.errors import NodesRefused
from skyward_nb.words.spec import PoolSpec


class Kubectl:
    """A shell with answers by their verb; `said` has the commands."""

    def __init__(self, **answers):
        self.answers = answers
        self.said = []

    async def run(self, script, **_):
        self.said.append(script)
        for verb, answer in self.answers.items():
            if f" {verb} " in script:
                return ScriptResult(0, answer.encode(), "")
        return ScriptResult(0, b"", "")


@pytest.fixture(autouse=True)
def folders(tmp_path, monkeypatch):
    monkeypatch.setenv("SKYWARD_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("SKYWARD_RUNTIME_DIR", str(tmp_path / "runtime"))


def noted(**fields):
    record = PodRecord(pool_id="p-1", maker=MakerProcess.this(), listing="/no/such", **fields)
    record.write()
    return record


@pytest.mark.parametrize("answer", ["Welcome!", "{}", '{"metadata": {}}', ""])
def test_an_answer_that_names_no_job_may_have_made_one(answer):
    shell = Kubectl(create=answer, version="{}")
    with pytest.raises(ClusterSilent, match="kubectl was to name the Job that it made"):
        asyncio.run(KubernetesCluster(shell).create("{}"))
    job = PoolJob(noted(), KubernetesCluster(shell), may_exist=False)
    with pytest.raises(NodesRefused, match="was to name the Job"):
        asyncio.run(job.begin(PoolSpec(provider="kubernetes"), lambda _: None, line_to))
    shell.answers["get"] = '{"items": []}'
    assert asyncio.run(job.give_back()) == ""
    assert any(" delete job skyward-p-1 " in each for each in shell.said)
    assert PodRecord.every()[0].is_left  # it may appear later


def test_a_record_leads_to_its_own_cluster(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KUBECONFIG", "one.yaml")
    record = noted(context="default", kubeconfig=kubeconfig(), server="https://one:6443")
    assert record.kubeconfig == str(tmp_path / "one.yaml")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "two.yaml"))
    assert record.environ["KUBECONFIG"] == str(tmp_path / "one.yaml")
    assert cluster_of(record)._shell._environ == record.environ
    assert line_to(record, "pod-0")._environ == record.environ


def test_a_job_of_another_cluster_is_not_taken_for_one_that_is_gone():
    record = noted(context="default", server="https://one:6443", is_left=True)
    shell = Kubectl(config="https://two:6443", get='{"items": []}')
    with pytest.raises(
        EngineFault, match="it is at https://one:6443, and its context here leads to"
    ):
        asyncio.run(PoolJob(record, KubernetesCluster(shell, "default")).end_orphan())
    assert PodRecord.every()
    shell.answers["config"] = "https://one:6443"
    assert not asyncio.run(PoolJob(record, KubernetesCluster(shell, "default")).end_orphan())
