"""Kubernetes: its API, the manifests of a launch, and the meaning of its answers."""

from .api import KubernetesApi
from .manifests import (
    Manifest,
    PodsOrder,
    PodTemplate,
    host_name_of_first,
    make_manifests,
    owned_by,
    read_pod_template,
    without_values,
)
from .states import (
    Answer,
    has_begun,
    has_job_failed,
    has_pod_failed,
    is_deleted,
    is_scaling_up,
    newest_pods,
    node_of,
    why_ended,
    why_stuck,
    why_unscheduled,
    why_without_pods,
)
