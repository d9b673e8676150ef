"""``recommend``: model size, days, cost, and the base configuration.

``recommend --family F --gpus N --tflops-per-gpu T --max-days D --tokens 300B [--json]``
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from autoconf_launch.autotuner.sizing import RunPlan
from autoconf_launch.core import ConfigError

from ..asked import RecommendCommand, read_flags
from ..estimates import (
    Recommendation,
    base_config_text,
    base_document,
    cluster_of,
    recommendation,
)
from ..export import export_base
from ..pages import recommend_page, write_page
from ..report import recommend_document, recommend_text, save_text


def recommend(arguments: Sequence[str]) -> Iterator[str]:
    """Text to print; writes the file of ``--base-config``.

    Raises:
        ConfigError: wrong arguments, a size that the family does not allow, an unwritable file.
    """
    request = read_flags(RecommendCommand, arguments, {"tokens_b": 0.0})
    if request.base_config is not None:
        _require_folder(request.base_config)
    answer = recommendation(request, cluster_of(request))
    written = _write(request, answer) if request.base_config else ()
    text = recommend_text(answer)
    if request.html is not None:
        write_page(recommend_page(answer, text), request.html)
    if request.json:
        yield recommend_document(answer)
        return
    yield text
    if written:
        batch = answer.model.batch.global_batch
        own = f", with a global batch of {batch}" if batch != answer.global_batch else ""
        yield f"\nBase configuration: {written[0]}{own}"
        yield from (f"exported to {path}" for path in written[1:])
    if request.html is not None:
        yield f"\nWritten: {request.html}"


def _require_folder(path: Path) -> None:
    if not path.parent.is_dir():
        raise ConfigError(
            f"--base-config: the folder {path.parent} does not exist; make it, or give a path in "
            "one that does."
        )


def _write(request: RecommendCommand, answer: Recommendation) -> tuple[Path, ...]:
    assert request.base_config is not None
    plan = RunPlan(
        days=request.max_days or answer.exact_days,
        nodes=answer.cluster.nodes,
        gpus_per_node=answer.cluster.gpus_per_node,
        tokens_b=request.tokens_b,
        wandb_project=request.wandb_project,
    )
    document = base_document(answer.model, plan, request.custom_config)
    exports = {name: export_base(document, name) for name in request.export}
    save_text(request.base_config, base_config_text(document))
    paths = [request.base_config]
    for name, exported in exports.items():
        paths.append(request.base_config.with_suffix(f".{name}{exported.suffix}"))
        save_text(paths[-1], exported.text)
    return tuple(paths)
