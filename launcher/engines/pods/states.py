"""Meaning of Kubernetes' answers about the pods of a Job.

Reasons and conditions: "Pod Lifecycle", "Disruptions" and "Jobs" of Kubernetes' documentation.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from autoconf_launch.core import Failure, FailureKind, visible

Answer: TypeAlias = dict[str, Any]

_INDEX = "batch.kubernetes.io/job-completion-index"
_DISRUPTIONS = {
    "PreemptionByScheduler": FailureKind.PREEMPTED,
    "EvictionByEvictionAPI": FailureKind.PREEMPTED,
    "DeletionByTaintManager": FailureKind.NODE_LOST,
    "DeletionByPodGC": FailureKind.NODE_LOST,
    "TerminationByKubelet": FailureKind.NODE_LOST,
}
"""Reasons of the condition DisruptionTarget."""
_REASONS = {
    "Evicted": FailureKind.PREEMPTED,
    "Preempting": FailureKind.PREEMPTED,
    "NodeLost": FailureKind.NODE_LOST,
    "NodeShutdown": FailureKind.NODE_LOST,
    "Terminated": FailureKind.NODE_LOST,
    "UnexpectedAdmissionError": FailureKind.NODE_LOST,
    "DeadlineExceeded": FailureKind.TIMED_OUT,
}
"""Reasons of a pod that has failed; ``OutOf...`` means that a node refused it."""
_CANNOT_START = frozenset(
    {
        *("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"),
        *("CreateContainerConfigError", "CreateContainerError", "RunContainerError"),
    }
)
_NEVER_RAN = frozenset({"StartError", "ContainerCannotRun"})


def newest_pods(pods: Iterable[Answer]) -> dict[int, Answer]:
    """The pods of a Job by their index."""
    found = {}
    for pod in sorted(pods, key=lambda pod: str(pod["metadata"].get("creationTimestamp"))):
        about = pod["metadata"]
        index = (about.get("labels") or {}).get(_INDEX)
        index = index or (about.get("annotations") or {}).get(_INDEX, "")
        if index.isdecimal():
            found[int(index)] = pod
    return found


def node_of(pod: Answer) -> str | None:
    """The node that it runs on."""
    node = (pod.get("spec") or {}).get("nodeName")
    return str(node) if node else None


def has_begun(pod: Answer) -> bool:
    """True if its container runs or has run."""
    state = _container(pod).get("state") or {}
    ended = pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
    return ended or "running" in state or "terminated" in state


def has_pod_failed(pod: Answer) -> bool:
    """True if it has ended with an error."""
    return bool((pod.get("status") or {}).get("phase") == "Failed")


def has_job_failed(job: Answer) -> bool:
    """True if the cluster has given the Job up."""
    return _condition(job.get("status") or {}, "Failed", "True") is not None


def is_deleted(pod: Answer | None) -> bool:
    """True if a pod is gone or is being deleted."""
    return pod is None or "deletionTimestamp" in pod["metadata"]


def why_ended(pod: Answer) -> Failure | None:
    """The end of a pod, regardless of its agent's report; None while it waits or runs."""
    status, name = pod.get("status") or {}, _title(pod)
    if disruption := _condition(status, "DisruptionTarget", "True"):
        kind = _DISRUPTIONS.get(disruption.get("reason", ""), FailureKind.PREEMPTED)
        if status.get("reason") == "Evicted":
            kind = FailureKind.PREEMPTED
        return _disruption(kind, name, disruption)
    if is_deleted(pod) and not has_pod_failed(pod):
        return Failure(kind=FailureKind.PREEMPTED, detail=f"{name} was deleted from outside")
    if status.get("phase") not in ("Succeeded", "Failed"):
        return None
    reason = str(status.get("reason", ""))
    refused = FailureKind.PREEMPTED if reason.startswith("OutOf") else None
    if by_reason := _REASONS.get(reason, refused):
        return _disruption(by_reason, name, status)
    return _how_it_exited(name, _container(pod).get("state", {}).get("terminated") or {})


def _how_it_exited(name: str, ended: Answer) -> Failure:
    reason, code = ended.get("reason", ""), ended.get("exitCode")
    if reason == "OOMKilled":
        detail = f"{name} exceeded its memory limit (OOMKilled); give the Pod more memory"
        return Failure(kind=FailureKind.OUT_OF_MEMORY, detail=detail)
    if reason in _NEVER_RAN:
        why = _one_line(str(ended.get("message", reason)))
        return Failure(kind=FailureKind.BAD_CONFIG, detail=f"{name} cannot start: {why}")
    detail = f"{name} ended with code {code} without a report"
    return Failure(kind=FailureKind.CRASHED, detail=detail)


def _disruption(kind: FailureKind, name: str, why: Answer) -> Failure:
    said = ": ".join(filter(None, (why.get("reason"), _one_line(why.get("message", "")))))
    if kind is FailureKind.NODE_LOST:
        return Failure(kind=kind, detail=f"was lost ({name}: {said})")
    verb = "ran beyond its deadline" if kind is FailureKind.TIMED_OUT else "was taken away"
    return Failure(kind=kind, detail=f"{name} {verb} ({said})")


def why_stuck(pod: Answer) -> str | None:
    """Why a waiting pod will never begin; None if it may."""
    name = _title(pod)
    waiting = (_container(pod).get("state") or {}).get("waiting") or {}
    if waiting.get("reason") in _CANNOT_START:
        said = ": ".join(filter(None, (waiting["reason"], _one_line(waiting.get("message", "")))))
        return f"{name} cannot start ({said}); fix the Pod's manifest"
    message = why_unscheduled(pod)
    if message and is_unresolvable(message):
        return f"No node can take {name} ({message}); ask for less, or fix the Pod's manifest"
    return None


def why_unscheduled(pod: Answer) -> str | None:
    """The scheduler's message on a pod without a node."""
    said = _condition(pod.get("status") or {}, "PodScheduled", "False")
    is_refused = said is not None and said.get("reason") == "Unschedulable"
    return _one_line(said.get("message", "")) if said and is_refused else None


def is_unresolvable(message: str) -> bool:
    """True if the scheduler reports that the end of other pods would change nothing.

    It reports so for each node that is too small or has the wrong labels or taints.
    """
    found = re.search(r"preemption: 0/(\d+) nodes are available: (.*)", message)
    helpless = re.search(r"(\d+) Preemption is not helpful for scheduling", message)
    return bool(found and helpless and found[1] == helpless[1])


def why_without_pods(events: Sequence[Answer]) -> str | None:
    """Why the cluster makes no pods of a Job, by the Job's events; a full quota is waited for."""
    for event in reversed(events):
        said = _one_line(event.get("message", ""))
        if event.get("reason") == "FailedCreate" and "exceeded quota" not in said:
            return f"The cluster makes no pods ({said})"
    return None


def is_scaling_up(events: Sequence[Answer]) -> bool:
    """True if an autoscaler adds nodes."""
    return any(event.get("reason") == "TriggeredScaleUp" for event in events)


def _condition(status: Answer, kind: str, value: str) -> Answer | None:
    found = (c for c in status.get("conditions") or () if c.get("type") == kind)
    return next((c for c in found if c.get("status") == value), None)


def _container(pod: Answer) -> Answer:
    found = (pod.get("status") or {}).get("containerStatuses") or [{}]
    return dict(found[0])


def _title(pod: Answer) -> str:
    node = node_of(pod)
    return f"pod {pod['metadata']['name']}" + (f" on node {node}" if node else "")


def _one_line(text: str) -> str:
    return visible(" ".join(text.split()))[:300].rstrip(".")
