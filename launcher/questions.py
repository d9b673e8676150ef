"""The verbs for Python: keyword arguments to the requests that flags fill, answers as values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from autoconf_launch.autotuner.cost import ALL_LAYERS, AUTO_TRAINER
from autoconf_launch.autotuner.space import parse_budget
from autoconf_launch.core import (
    ConfigError,
    Layout,
    NothingFeasibleError,
    Optimizer,
    Precision,
    Recompute,
    Software,
    Workload,
)

from .commands import run_tune
from .estimates import (
    FitRequest,
    PlanRequest,
    RecommendRequest,
    TrainingRequest,
    choose_cluster,
    cluster_of,
    fit_answer,
    limit_memory,
    model_of_flags,
    plan_answer,
    plan_clusters,
    recommendation,
    run_bounds,
    what_is_missing,
    with_trainer,
)
from .events import Event, Finished, Listener
from .inference import (
    FitInferenceRequest,
    PlanInferenceRequest,
    Serving,
    fit_inference_answer,
    plan_inference_answer,
)
from .keywords import (
    FitInferenceKeywords,
    FitKeywords,
    PlanInferenceKeywords,
    PlanKeywords,
    RecommendKeywords,
    TuneKeywords,
    check_sizes,
    check_values,
    keyword_errors,
)
from .measurements import Validation, calibration_of, score_files, together
from .notebook import (
    ShownClusters,
    ShownFit,
    ShownFitInference,
    ShownPlan,
    ShownPlanInference,
    ShownRecommendation,
    TuneAnswer,
    show_as,
)
from .request import LaunchRequest, UserWords

if TYPE_CHECKING:
    from typing_extensions import Unpack


_LAYOUT = {
    "tp": "tensor_parallel",
    "pp": "pipeline_parallel",
    "vpp": "virtual_pipeline",
    "cp": "context_parallel",
    "ep": "expert_parallel",
    "zero": "zero_stage",
    "micro_batch": "micro_batch",
    "recompute": "recompute",
    "offload": "offload",
    "sequence_parallel": "sequence_parallel",
}
"""Keywords and fields of a layout."""
_OF_WORKLOAD = {
    "precision": "precision",
    "lora_rank": "lora_rank",
    "weights": "weight_format",
}
_OF_PLAN = frozenset(field.name for field in fields(PlanRequest))
_OF_SERVING = frozenset(field.name for field in fields(Serving))
_OF_POINT = frozenset(field.name for field in fields(FitInferenceRequest))
_OF_POINTS = frozenset(field.name for field in fields(PlanInferenceRequest))
_SIZES = ("tp", "pp", "batch")
_OWN_RUNS = ("measured", "verify", "verify_budget_usd")


def fit(**training: Unpack[FitKeywords]) -> ShownFit:
    """Whether a training fits in one layout; no exception where it does not.

    Args:
        training: ``cluster`` (``"8xA100-SXM-80GB"`` or a file), ``seq`` (tokens of a sample) and
            ``global_batch`` (samples of a step) are required, and ``model`` (a name, a
            ``config.json`` or a ``model_info.json``) or ``shapes`` (fields of ``Architecture``).
            ``precision`` (bf16), ``optimizer`` (adamw), ``trainer`` (auto: whose rules hold),
            ``lora_rank`` (None: all weights), ``weights`` that rest under it (int8 or nf4; None:
            in the precision of the run), ``flash_attention`` (None: as the trainer has it),
            ``compile`` (False) and ``memory_bytes`` of each GPU (None: as it has) describe it.
            The layout: ``tp``, ``pp``, ``vpp``, ``cp``, ``ep`` and ``micro_batch`` (1 each),
            ``zero`` (1), ``recompute`` (none), ``recompute_layers`` of each stage (None: all),
            ``offload`` (none), ``sequence_parallel`` (True with ``tp``). Data parallelism and
            accumulation follow from the cluster and the global batch.

    Raises:
        ConfigError: a keyword, a value, a name or a layout is wrong.
    """
    with keyword_errors("fit", FitKeywords, training):
        given = check_values(training)
        layers = given.get("recompute_layers")
        if layers is not None:
            given["recompute"] = Recompute.FULL
        layout = {field: given[name] for name, field in _LAYOUT.items() if name in given}
        request = FitRequest(
            training=_trainings(given, [given["cluster"]])[0],
            layout=Layout(**layout),
            recompute_layers=layers or ALL_LAYERS,
            is_sequence_open="sequence_parallel" not in given,
            is_zero_open="zero" not in given,
        )
        return show_as(ShownFit, fit_answer(request))


@overload
def plan(*, cluster: str, **training: Unpack[PlanKeywords]) -> ShownPlan: ...
@overload
def plan(
    *, cluster: list[str] | tuple[str, ...], **training: Unpack[PlanKeywords]
) -> ShownClusters: ...
def plan(
    *, cluster: str | list[str] | tuple[str, ...], **training: Unpack[PlanKeywords]
) -> ShownPlan | ShownClusters:
    """Every layout of a training, ranked; ``plan.best`` of the answer is empty where none fits.

    ``plan.apart`` has layouts that may be faster than the first one, but do not run here or were
    never checked; ``changes`` are answers for the nearest trainings, where no other layout fits.

    Args:
        cluster: as :func:`fit` takes it; of several, the best layout of each is ranked.
        training: the training as :func:`fit` takes it, and ``top`` (10 families; None: all layouts
            that fit), ``headroom`` (0.1: the share of memory that a safe layout leaves free),
            ``gpus_needed`` (False; True: the cluster is a node, and the fewest GPUs of its kind
            are taken), ``explain`` (False: no reasons why known layouts lost), ``objective``
            (time, or cost), ``tokens`` of the whole training, for ``deadline_s`` in seconds and
            ``max_cost_usd`` (None: no limit), ``usd_per_gpu_hour`` (None: our price), and for one
            cluster ``measured`` (None; a CSV file of real runs that correct the steps) and
            ``verify`` (so many further runs) or ``verify_budget_usd``: ``verifying`` of the
            answer then names the cheapest runs that narrow the best layout's error band.

    Raises:
        ConfigError: a keyword, a value or a name is wrong, no run serves, or nodes differ.
    """
    with keyword_errors("plan", PlanKeywords, training):
        given = check_values(training)
        if "objective" in given:
            given["goal"] = given.pop("objective")
        chosen = {name: given[name] for name in given.keys() & _OF_PLAN} | _own_runs(given)
        texts = [cluster] if isinstance(cluster, str) else list(dict.fromkeys(cluster))
        if not texts:
            raise ConfigError("cluster is empty; give at least one, such as '8xH100'.")
        first, *others = _trainings(given, texts)
        request = PlanRequest(training=first, others=tuple(others), **chosen)
        limits = (request.deadline_s, request.max_cost_usd)
        if request.tokens is None and any(limit is not None for limit in limits):
            raise ConfigError("deadline_s and max_cost_usd need tokens, such as 15 * 10**12.")
        for name in _OWN_RUNS:
            if others and given.get(name) is not None:
                raise ConfigError(f"{name} is about the layouts of one cluster; give one cluster.")
        if isinstance(cluster, str):
            return show_as(ShownPlan, plan_answer(request))
        return ShownClusters(answers=plan_clusters(request))


def fit_inference(**serving: Unpack[FitInferenceKeywords]) -> ShownFitInference:
    """Whether a model generates text with a batch in memory, and how fast.

    Args:
        serving: ``cluster``, ``input_len`` and ``output_len`` (tokens of a prompt and of its
            answer) are required, and ``model`` or ``shapes`` as :func:`fit` takes them.
            ``precision`` (bf16), ``engine`` (vllm; native or fastertransformer) and
            ``memory_bytes`` of each GPU (None: as it has) describe it; ``tp``, ``pp`` and
            ``batch`` (1 each) are the point; ``usd_per_gpu_hour`` (None: our price).

    Raises:
        ConfigError: a keyword, a value or a name is wrong, or the model generates no text so.
    """
    with keyword_errors("fit_inference", FitInferenceKeywords, serving):
        given = check_values(serving)
        chosen = {name: given[name] for name in given.keys() & _OF_POINT}
        request = FitInferenceRequest(serving=_serving(given), **chosen)
        return show_as(ShownFitInference, fit_inference_answer(request))


def plan_inference(**serving: Unpack[PlanInferenceKeywords]) -> ShownPlanInference:
    """Tensor and pipeline ranks and batches of text generation, ranked by throughput per GPU.

    ``plan.best`` has those within the bound, ``plan.front`` what no other point beats in both
    latency and throughput; ``recommended`` is None where none is within the bound.

    Args:
        serving: as :func:`fit_inference` takes it, and ``tp``, ``pp`` and ``batch`` to look at
            (all), ``max_latency_ms`` of a batch from its prompt to its last token (infinite),
            ``top`` (10 rows of the table; None: all), ``headroom`` (0.1: the share of memory that
            stays free).

    Raises:
        ConfigError: as for :func:`fit_inference`, or the nodes are unequal.
    """
    with keyword_errors("plan_inference", PlanInferenceKeywords, serving):
        words: dict[str, Any] = dict(serving)
        sizes: dict[str, Any] = {
            name: check_sizes(name, words.pop(name)) for name in _SIZES if name in words
        }
        given = check_values(words)
        chosen = {name: given[name] for name in given.keys() & _OF_POINTS}
        request = PlanInferenceRequest(serving=_serving(given), **chosen, **sizes)
        return show_as(ShownPlanInference, plan_inference_answer(request))


def recommend(**question: Unpack[RecommendKeywords]) -> ShownRecommendation:
    """Which model size machines can train in some days, how long one takes, or on how many GPUs.

    Args:
        question: ``tokens_b`` (billions) is required; so are ``max_days`` for a size, or
            ``model_size_b`` (billions of weights) or ``model`` (a name, an id of the Hugging Face
            hub, a ``config.json``) for the days, or both for the GPUs of a cluster's kind;
            ``family`` (gpt3, llama, …) without a model, ``gpus`` or ``cluster``, and
            ``tflops_per_gpu`` (achieved) or ``cluster``. ``nodes``, ``gpu_memory_gb``,
            ``vocabulary``, ``sequence`` (tokens), ``global_batch`` (samples), ``goodput`` and
            ``usd_per_gpu_hour`` are as the family and our tables have them; ``measured`` (None)
            is a CSV file of real runs that correct the speed; ``verify`` and
            ``verify_budget_usd`` are as :func:`plan` takes them.

    Raises:
        ConfigError: a keyword or a value is wrong, or the question is incomplete.
        NothingFeasibleError: no number of GPUs is fast enough.
    """
    with keyword_errors("recommend", RecommendKeywords, question):
        given: dict[str, Any] = dict(question)
        own_runs = check_values({name: given.pop(name, None) for name in _OWN_RUNS})
        request = RecommendRequest(**given, **_own_runs(own_runs))
        if missing := what_is_missing(request):
            raise ConfigError(f"{missing}.")
        return show_as(ShownRecommendation, recommendation(request, cluster_of(request)))


def validate(
    files: Iterable[str | Path],
    *,
    trainer: str = AUTO_TRAINER,
    calibrate: int | None = None,
    seed: int = 0,
) -> Validation:
    """How wrong predictions are on tables of measurements, over all of their rows.

    Args:
        files: CSV files, each once.
        trainer: framework of rows without a column ``trainer``; auto: by source, then GPU.
        calibrate: measurements of each model to fit the factors on, which are not scored; None:
            no fit.
        seed: draws them; at least 0.

    Raises:
        ConfigError: a value is wrong, or a file is not a table of measurements.
    """
    given = {"trainer": trainer, "calibrate": calibrate, "seed": seed}
    with keyword_errors("validate", None, given):
        check_values(given)
        calibration = calibration_of(calibrate, seed)
        scored = score_files(list(map(Path, files)), calibration, trainer)
        return together([one for _, one in scored])


def tune(
    script: str,
    arguments: Sequence[str] = (),
    listener: Listener | None = None,
    **choices: Unpack[TuneKeywords],
) -> TuneAnswer:
    """Find the fastest configuration of a script by short runs, as ``--autotuning=tune`` does.

    Args:
        script: its path; the results go to the working directory, unless its settings say where.
        arguments: of the script, such as ``("--config", "config.json")``.
        listener: gets each event of the search; None: nobody.
        choices: ``processes`` on each host (None: all GPUs), ``effort`` (quick, normal or
            thorough; None: as the script's settings say), ``budget`` ("20m", "30trials", "$15";
            None: no limit), ``good_enough`` (share of gain below which the search ends; None: as
            the effort has it), ``memory_limit_bytes`` of each rank (None),
            ``max_parallel_trials`` (None: as many as GPUs allow, 1 on a CPU),
            ``trial_timeout_s`` (600), ``stall_timeout_s`` (120), ``soak_steps`` of the winner
            (None: as many as pay; 0: none), ``tuning_space`` (a file), ``dialect`` (None: the one
            that fits), ``fresh`` (False: goes on), ``history`` (True), ``trust_results``
            of others, ``allow_global_batch_change`` and ``keep_global_batch`` (False).

    Raises:
        ConfigError: a keyword, a setting or the script is wrong.
        NothingFeasibleError: the baseline fails, or nothing fits.
    """
    ends: list[Finished] = []

    def hear(event: Event) -> None:
        if isinstance(event, Finished):
            ends.append(event)
        if listener is not None:
            listener(event)

    with keyword_errors("tune", TuneKeywords, choices):
        run_tune(_launch_request((script, *arguments), choices), hear)
    end = ends[-1] if ends else None
    if end is None or end.winner is None or end.folder is None:
        raise NothingFeasibleError("The search ended without a measured configuration.")
    return TuneAnswer(winner=end.winner, text=end.text, folder=end.folder)


def _launch_request(words: tuple[str, ...], choices: Mapping[str, Any]) -> LaunchRequest:
    """A tune of a command: a script and its arguments."""
    given: dict[str, Any] = dict(choices)
    if isinstance(given.get("budget"), str):
        given["budget"] = parse_budget(given["budget"])
    effort = given.pop("effort", None)
    overrides = () if effort is None else (("effort", effort),)
    names = UserWords.__dataclass_fields__.keys() & given.keys()
    said = UserWords(overrides=overrides, **{name: given.pop(name) for name in names})
    return LaunchRequest(
        script=words[0],
        script_args=words[1:],
        autotuning="tune",
        words=said,
        argv=words,
        **given,
    )


def _own_runs(given: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a request on the runs that correct an answer, and on further ones."""
    bounds = run_bounds(given.get("verify"), given.get("verify_budget_usd"))
    return {"measured": given.get("measured"), "verify": bounds}


def _trainings(given: Mapping[str, Any], clusters: Sequence[str]) -> tuple[TrainingRequest, ...]:
    """The training on each cluster, with one trainer."""
    return with_trainer(
        [_training({**given, "cluster": text}) for text in clusters],
        given.get("trainer", AUTO_TRAINER),
        flash_attention=given.get("flash_attention"),
        runnable=given.get("runnable", False),
    )


def _training(given: Mapping[str, Any]) -> TrainingRequest:
    cluster = choose_cluster(given["cluster"])
    further = {own: given[name] for name, own in _OF_WORKLOAD.items() if name in given}
    precision = further.pop("precision", Precision.BF16)
    workload = Workload(
        model=model_of_flags(given.get("model"), given.get("shapes", {})),
        sequence_length=given["seq"],
        global_batch=given["global_batch"],
        precision=precision,
        optimizer=Optimizer.from_name(given.get("optimizer", "adamw")),
        software=Software(compiled=given.get("compile", False)),
        **further,
    )
    return TrainingRequest(
        workload=workload,
        cluster=cluster,
        limit_bytes=limit_memory(given.get("memory_bytes"), cluster),
        cluster_text=given["cluster"],
        given=frozenset({"--trainer"} if "trainer" in given else ()),
    )


def _serving(given: Mapping[str, Any]) -> Serving:
    cluster = choose_cluster(given["cluster"])
    further = {name: given[name] for name in given.keys() & _OF_SERVING - {"model", "cluster"}}
    return Serving(
        model=model_of_flags(given.get("model"), given.get("shapes", {})),
        cluster=cluster,
        limit_bytes=limit_memory(given.get("memory_bytes"), cluster),
        **further,
    )
