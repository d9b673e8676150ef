"""Shapes of answers: Kubernetes' documentation ("Disruptions", "Pod Lifecycle", "Jobs", "Debug
Pods") and its API reference; words of the scheduler: its own source, 1.35."""

from typing import Any

import pytest

from autoconf_launch.core import FailureKind
from autoconf_launch.launcher.engines.pods import (
    has_begun,
    has_job_failed,
    newest_pods,
    why_ended,
    why_stuck,
    why_without_pods,
)


def pod(phase: str = "Running", *, node: str = "gpu-7", **status: Any) -> dict[str, Any]:
    labels = {"batch.kubernetes.io/job-completion-index": "1"}
    about = {"name": "x-1-abcde", "labels": labels, "creationTimestamp": "2026-01-01T00:00:00Z"}
    return {"metadata": about, "spec": {"nodeName": node}, "status": {"phase": phase, **status}}


def pod_after(**state: Any) -> dict[str, Any]:
    return pod("Failed", containerStatuses=[{"name": "ranks", "state": {"terminated": state}}])


def pod_of_disruption(disruption: str, phase: str = "Failed", **status: Any) -> dict[str, Any]:
    why = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": disruption,
        "message": "Because.",
    }
    return pod(phase, conditions=[why], **status)


@pytest.mark.parametrize(
    ("found", "kind", "detail"),
    [
        (pod_of_disruption("PreemptionByScheduler"), FailureKind.PREEMPTED, "taken away"),
        (pod_of_disruption("EvictionByEvictionAPI"), FailureKind.PREEMPTED, "taken away"),
        (
            pod_of_disruption("DeletionByTaintManager", "Running"),
            FailureKind.NODE_LOST,
            "was lost",
        ),
        (pod_of_disruption("DeletionByPodGC"), FailureKind.NODE_LOST, "was lost"),
        (pod_of_disruption("TerminationByKubelet"), FailureKind.NODE_LOST, "was lost"),
        (
            pod_of_disruption("TerminationByKubelet", reason="Evicted"),
            FailureKind.PREEMPTED,
            "TerminationByKubelet: Because",
        ),
        (pod("Failed", reason="NodeShutdown", message="m"), FailureKind.NODE_LOST, "NodeShutdown"),
        (pod("Failed", reason="OutOfnvidia.com/gpu"), FailureKind.PREEMPTED, "OutOfnvidia"),
        (
            pod("Failed", reason="DeadlineExceeded", message="Pod was active too long"),
            FailureKind.TIMED_OUT,
            "ran beyond its deadline (DeadlineExceeded: Pod was active too long)",
        ),
        (pod_after(exitCode=137, reason="OOMKilled"), FailureKind.OUT_OF_MEMORY, "memory limit"),
        (
            pod_after(exitCode=128, reason="StartError", message='exec: "/x": no such file'),
            FailureKind.BAD_CONFIG,
            'cannot start: exec: "/x": no such file',
        ),
        (pod_after(exitCode=1, reason="Error"), FailureKind.CRASHED, "ended with code 1"),
        (pod("Succeeded"), FailureKind.CRASHED, "without a report"),
    ],
)
def test_an_end_is_told_from_the_state_of_a_pod(
    found: dict[str, Any], kind: FailureKind, detail: str
) -> None:
    failure = why_ended(found)
    assert failure is not None
    assert failure.kind is kind
    assert detail in failure.detail
    assert "pod x-1-abcde on node gpu-7" in failure.detail


def test_a_pod_that_runs_or_waits_has_not_ended_unless_somebody_deletes_it() -> None:
    found = pod("Running")
    assert why_ended(found) is None
    assert why_ended(pod("Pending")) is None
    found["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    failure = why_ended(found)
    assert failure is not None
    assert failure.kind is FailureKind.PREEMPTED
    assert "deleted from outside" in failure.detail


BUSY = (
    "0/4 nodes are available: 4 Insufficient nvidia.com/gpu. preemption: 0/4 nodes are available: "
    "4 No preemption victims found for incoming pod."
)
HALF = (
    "0/4 nodes are available: 1 node(s) had untolerated taint(s), 3 Insufficient nvidia.com/gpu. "
    "preemption: 0/4 nodes are available: 1 Preemption is not helpful for scheduling, 3 No "
    "preemption victims found for incoming pod."
)
TOO_SMALL = (
    "0/4 nodes are available: 4 Insufficient nvidia.com/gpu. preemption: 0/4 nodes are available: "
    "4 Preemption is not helpful for scheduling."
)


@pytest.mark.parametrize(
    ("said", "is_hopeless"), [(BUSY, False), (HALF, False), (TOO_SMALL, True)]
)
def test_a_pod_waits_unless_no_node_could_ever_take_it(said: str, is_hopeless: bool) -> None:
    why = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": said}
    stuck = why_stuck(pod("Pending", node="", conditions=[why]))
    assert bool(stuck) is is_hopeless
    assert not stuck or "4 Insufficient nvidia.com/gpu" in stuck


@pytest.mark.parametrize("reason", ["ImagePullBackOff", "CreateContainerConfigError"])
def test_a_container_that_cannot_be_made_is_named(reason: str) -> None:
    state = {"waiting": {"reason": reason, "message": 'Back-off pulling image "x"'}}
    waits = pod("Pending", containerStatuses=[{"name": "ranks", "state": state}])
    assert f'({reason}: Back-off pulling image "x")' in (why_stuck(waits) or "")
    assert not has_begun(waits)


def test_a_refused_pod_is_told_from_the_events_of_its_job_and_a_quota_is_waited_for() -> None:
    quota = {"reason": "FailedCreate", "message": 'pods "x" is forbidden: exceeded quota: gpus'}
    rule = {"reason": "FailedCreate", "message": 'pods "x" is forbidden: violates PodSecurity'}
    assert why_without_pods([quota]) is None
    assert "violates PodSecurity" in (why_without_pods([rule, quota]) or "")


def test_of_two_pods_of_one_index_the_newer_one_counts() -> None:
    old, new = pod(), pod()
    new["metadata"] = new["metadata"] | {"creationTimestamp": "2026-01-02T00:00:00Z", "name": "y"}
    assert newest_pods([new, old, {"metadata": {"name": "z"}}]) == {1: new}


def test_a_job_that_was_given_up_says_so() -> None:
    failed = {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"}
    assert has_job_failed({"status": {"conditions": [failed]}})
    assert not has_job_failed({"status": {"active": 1}})
