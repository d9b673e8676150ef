"""``recommend``: model size, days, cost, and the base configuration. Not: how they follow.

``recommend --family F --gpus N --tflops-per-gpu T --max-days D --tokens 300B [--json]``
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from autoconf_launch.autotuner.recommend.base_config import RunPlan

from ..planner.base_config_file import base_document, write_base_config
from ..planner.recommend_cluster import ChosenCluster, cluster_of
from ..planner.recommend_flags import RecommendRequest, parse_recommend
from ..planner.recommendation import Recommendation, recommendation
from ..views.recommend_text import recommend_document, recommend_text


def recommend(arguments: Sequence[str]) -> Iterator[str]:
    """Text to print; writes a file where ``--base-config`` asks for it.

    Raises:
        ConfigError: wrong arguments, a size that the family does not allow, an unwritable file.
    """
    request = parse_recommend(arguments)
    cluster = cluster_of(request)
    answer = recommendation(request, cluster)
    if request.base_config is not None:
        _write(request, cluster, answer)
    if request.json:
        yield recommend_document(answer)
        return
    yield recommend_text(answer)
    if request.base_config is not None:
        yield f"\nBase configuration: {request.base_config}"


def _write(request: RecommendRequest, cluster: ChosenCluster, answer: Recommendation) -> None:
    assert request.base_config is not None
    assert answer.model is not None
    plan = RunPlan(
        days=request.max_days or answer.exact_days,
        nodes=cluster.nodes,
        gpus_per_node=cluster.gpus_per_node,
        tokens_b=request.tokens_b,
        wandb_project=request.wandb_project,
    )
    document = base_document(answer.model, plan, request.custom_config)
    write_base_config(document, request.base_config)
