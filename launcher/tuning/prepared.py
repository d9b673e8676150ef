"""From a job to a study: the profile run, the space, predictions.

If the profile run is out of memory, a trace of the script's first pass with fake weights on this
machine's CPU describes the model, as in ``fit``.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Sequence
from dataclasses import replace

from autoconf_launch.autotuner.cost import (
    KernelTimes,
    TracedOperations,
    block_operations,
    estimate,
    knob_rules,
    measured_timings,
    memory_rule,
    state_beyond_memory,
    untimed_band,
    weights_beyond_memory,
)
from autoconf_launch.autotuner.search import MARGIN, Study, baseline_trial
from autoconf_launch.autotuner.space import (
    OBJECTIVES,
    FailedTrial,
    Prediction,
    Record,
    SearchSpace,
    build_space,
    candidate_name,
)
from autoconf_launch.autotuner.strategies import ModelBased, PastTime, load_strategy, times_of
from autoconf_launch.core import (
    FIRST_FORWARD_FILE,
    MODEL_INFO_FILE,
    ConfigError,
    DecodeError,
    FirstForward,
    Layout,
    ModelSpec,
    NothingFeasibleError,
    Optimizer,
    RankTask,
    ResultsFolderError,
    decode,
    encode,
    plural,
    result_file,
    stages_obstacle,
)

from ..estimates import has_rates, machine_of
from ..events import Listener, ModelProfiled, Note, SpaceBuilt
from ..first_forward import TracedScript, command_of_plan, describe_script, trace_script
from ..machine import is_cpu
from ..plan import LaunchPlan
from ..report import no_time_for_ranks_text
from ..results import (
    JournalContents,
    OpenFolder,
    SpaceLine,
    key_of,
    own_secrets,
    read_file,
    read_past,
    read_result,
    remember,
)
from .job import TuningJob, search_limits
from .plain_start import OtherStartError, check_ranks, job_crash, remember_start
from .profile_run import (
    ProfileFailedError,
    Site,
    is_on_gpu,
    read_model_info,
    refused_baseline,
    refused_weights,
    run_profile,
)
from .running import BudgetSpentError
from .trial_io import TrialFiles, write_json

_TIME_LIMIT_S = 180.0
_FROM_DATASHEET = (
    "Step times are predicted from the model's FLOPs and the GPU's datasheet ({band}, a guess); "
    "trials correct them."
)
_DERIVED = ("accumulation", "data_parallel")


def find_model(job: TuningJob, site: Site) -> TuningJob:
    """The job with the model from the user's settings, an earlier session or a profile run.

    If the baseline runs out of memory in its profile run, the model comes from a trace of the
    script without computing, and with it the optimizer and the precision of the job.

    Raises:
        BudgetSpentError: the profile run did not end before the budget's deadline.
        ProfileFailedError: the script itself fails.
        OtherStartError: another start may work.
        HardwareError: hosts were lost, launch after launch.
    """
    given = job.user.settings.known_model()
    if given is not None:
        text = "The model is described by autotuning.model_info; the profile run is skipped."
        job.listener(Note(text=text))
        return replace(job, spec=given)
    profile, folder = job.paths.profile, site.folder
    event = ModelProfiled(
        spec=read_model_info(profile / MODEL_INFO_FILE),
        wall_s=folder.contents.profile_s if folder.profiled_now else None,
    )
    script = read_traced(job) if event.spec is None else None
    if not folder.contents.profiled:
        files, plans = TrialFiles.of_job(job), list[LaunchPlan]()

        def make_plan() -> LaunchPlan:
            baseline = baseline_trial(job.user.baseline)
            plans.append(files.plan_profile(baseline, uuid.uuid4().hex))
            return plans[-1]

        try:
            event = run_profile(make_plan, site, job.limits, job.listener)
        except ProfileFailedError as error:
            raise job_crash(job, error, error.failure) from error
        require_ranks(job, plans[-1].task, event)
        if event.spec is None and not site.pool.is_on_hosts:
            script = trace_refused(job, plans[-1])
    if script is not None:
        job, event = with_traced(job, script), replace(event, spec=script.spec)
    profile_s = event.wall_s or folder.contents.profile_s
    job = replace(job, spec=event.spec, profile_s=profile_s)
    job.listener(event)
    for note in _doubts(event.spec, is_external=job.dialect.is_external):
        job.listener(note)
    return job


def require_ranks(job: TuningJob, task: RankTask | None, profiled: ModelProfiled) -> None:
    """Check that the script started as many ranks as were expected.

    Raises:
        OtherStartError: it starts others by itself; unless it was started once and described its
            model, it is profiled again with these.
        BudgetSpentError: the budget has no room for that.
    """
    profile_s = profiled.wall_s or 0.0
    try:
        check_ranks(job.request, job.cluster, task)
    except OtherStartError as other:
        other.keeps_profile = job.request.alone and profiled.spec is not None
        if other.keeps_profile:
            raise
        if profile_s <= job.budget.left_s:
            job.listener(Note(text=f"The first profile run took {profile_s:.1f} s."))
            raise
        remember_start(other.request, job.paths)
        raise BudgetSpentError(
            no_time_for_ranks_text(other.request.started or 1, profile_s, job.budget.whole_s)
        ) from other


def _doubts(spec: ModelSpec | None, *, is_external: bool) -> tuple[Note, ...]:
    if spec is None or is_external:
        return ()
    return tuple(Note(text=note, warning=not spec.traced_peaks) for note in spec.notes)


def find_past_times(job: TuningJob, folder: OpenFolder) -> tuple[PastTime, ...]:
    """Step times of earlier tunes, from the journal, or from the user's file for a new one."""
    if not job.request.history or job.spec is None:
        return ()
    past = folder.contents.past
    if not past and not folder.contents.history:
        past = read_past(key_of(job.spec, job.cluster, job.dialect.name))
        if past:
            folder.journal.write_past(past)
    if past:
        text = (
            f"Starting from {plural(len(past), 'step time')} that earlier tunes of this model "
            "measured on this hardware (--no-history ignores them)."
        )
        job.listener(Note(text=text))
    return past


def known_refusal(job: TuningJob, contents: JournalContents) -> FailedTrial | None:
    """The baseline's out-of-memory in its profile run, if it is not recorded yet.

    The profile run of an external script is the baseline itself, so a launch would only repeat it.
    """
    name = baseline_trial(job.user.baseline).name
    if not job.dialect.is_external or any(r.trial.name == name for r in contents.history):
        return None
    return refused_baseline(job.paths.profile)


def remember_times(job: TuningJob, records: Sequence[Record]) -> None:
    """Keep this tune's step times for later tunes."""
    if job.request.history and job.spec is not None:
        remember(key_of(job.spec, job.cluster, job.dialect.name), times_of(records))


def datasheet_times(job: TuningJob) -> KernelTimes | None:
    """Micro-batch times by the model's FLOPs and the GPU's datasheet.

    None if the profile run timed some or used no GPU, no FLOPs are known, or our tables lack the
    GPU.
    """
    spec = job.spec
    if spec is None or measured_timings(spec) or not spec.forward_flops_per_sample:
        return None
    gpus = {device.name for device in job.cluster.devices}
    is_unknown = len(gpus) > 1 or not has_rates(job.cluster)
    if is_cpu(job.cluster) or is_unknown or not is_on_gpu(job.paths.profile):
        return None
    applied = job.source.applied
    precision = applied.precision if applied else job.user.workload.precision
    return TracedOperations(
        workload=replace(job.workload, precision=precision),
        machine=machine_of(job.cluster),
        operations=block_operations(spec),
        micro_batch=1,
    )


def make_study(
    job: TuningJob,
    past: tuple[PastTime, ...] = (),
    untimed: KernelTimes | None = None,
) -> Study:
    """The candidates with predictions, ready to search; reports skipped ones.

    ``past`` are step times of earlier tunes; ``untimed`` are micro-batch times if the profile run
    timed none.

    Raises:
        ConfigError: the user's own tensor degree cannot split the model, or its FLOPs are wanted
            and could not be counted.
        NothingFeasibleError: no rank can hold the weights, or a model's state in our runtime.
    """
    user, spec, workload = job.user, job.spec, job.workload
    if user.settings.metric == "FLOPS" and spec and not spec.forward_flops_per_sample:
        raise ConfigError(
            "autotuning.metric is FLOPS, but the profile run could not count this script's FLOPs; "
            "use throughput or latency."
        )
    _require_split(user.baseline.layout, spec)
    space = build_space(user.baseline, user.choices, user.batch_rule, user.settings)
    for text in space.notes:
        if text not in job.said:  # the profile run may have told another accumulation
            job.listener(Note(text=text))
    if job.dialect.is_external:  # these may shard or offload in ways of their own
        too_large = weights_beyond_memory(space, refused_weights(job.paths.profile))
    else:
        too_large = state_beyond_memory(space, workload, job.cluster)
    if too_large:
        raise NothingFeasibleError(too_large)
    predictions = estimate(space.table, workload, job.cluster, untimed=untimed)
    if untimed is not None:
        band = f"±{100 * untimed_band(spec):.0f} %" if spec else ""
        job.listener(Note(text=_FROM_DATASHEET.format(band=band)))
    rules = [memory_rule(predictions, job.cluster), *knob_rules(spec)]
    strategy = load_strategy(user.settings.tuner_type, OBJECTIVES[user.settings.metric])
    study = Study(
        space,
        predictions,
        user.settings,
        strategy=strategy.with_past(past) if isinstance(strategy, ModelBased) else strategy,
        rules=rules,
        limits=search_limits(job.request, job.budget, job.effort),
    )
    rejected = sum(count for _, count in study.pool.rejected)
    considered = len(space.table) + sum(count for _, count in space.rejected) - study.pool.smaller
    job.listener(
        SpaceBuilt(considered=considered, left=considered - rejected, rejected=study.pool.rejected)
    )
    return study


def trial_time(job: TuningJob, predicted: Prediction | None) -> float | None:
    """Upper bound of a trial of the baseline, by the profile run, in seconds; None if unknown.

    A trial starts as the profile run did and makes a few more steps.
    """
    if job.profile_s is None:
        return None
    result = read_result(job.paths.profile / result_file(0))
    steps_s = [step.wall_s for step in result.steps] if result else []
    step_s = min(steps_s, default=predicted.step_s if predicted else None) or 0.0
    more = max(0, job.user.settings.end_profile_step - len(steps_s))
    return job.profile_s + MARGIN * more * step_s


def _require_split(layout: Layout, spec: ModelSpec | None) -> None:
    limits = spec.degree_limits if spec else ()
    degrees = {
        "tensor": layout.tensor_parallel,
        "expert": layout.expert_parallel,
        "context": layout.context_parallel,
        "pipeline": layout.pipeline_parallel,
    }
    found = [limit.obstacle(degrees[limit.key]) for limit in limits]
    blocks = [limit.most[1] for limit in limits if limit.most is not None]
    found += [stages_obstacle(layout, count) for count in blocks]
    obstacle = next(filter(None, found), None)
    tokens = (spec.sequence_length if spec and layout.sequence_parallel else None) or 0
    if obstacle is None and tokens % (layout.tensor_parallel * layout.context_parallel):
        obstacle = (
            f"parallelism.sequence_parallel is true, but {layout.tensor_parallel} tensor ranks "
            f"cannot share {tokens // layout.context_parallel} tokens equally; set it to false."
        )
    if obstacle is not None:
        raise ConfigError(obstacle)


def open_space(folder: OpenFolder, space: SearchSpace, listener: Listener) -> JournalContents:
    """The journal's records of this space's candidates; a change is reported.

    The journal records the change, so that every reader distinguishes the same records.
    """
    contents = folder.contents
    line = SpaceLine(
        digest=space_digest(space),
        baseline=candidate_name(space.baseline),
        left_out=tuple(dict.fromkeys(r.trial.name for r in _outside(contents.history, space))),
    )
    if contents.space == line:
        return contents
    folder.journal.write_space(line)
    changed = contents.in_space(line)
    was_known = contents.space is not None or bool(line.left_out)
    if contents.history and was_known:
        listener(Note(text=_sentence(changed, space)))
    return changed


def space_digest(space: SearchSpace) -> str:
    """Digest of the baseline and of all candidates in their order, in hex."""
    found = hashlib.sha256(repr(space.baseline).encode())
    for name, column in space.table.columns:
        found.update(f"{name} {column.categories}".encode())
        found.update(column.codes.astype("<i8").tobytes())
    return found.hexdigest()


def _outside(records: Sequence[Record], space: SearchSpace) -> list[Record]:
    candidates = {record.trial.candidate for record in records}
    inside = {x for x in candidates if x == space.baseline or len(space.table.find(x))}
    return [record for record in records if record.trial.candidate not in inside]


def _sentence(changed: JournalContents, space: SearchSpace) -> str:
    count, used = len(changed.history), len(changed.records)
    if count == used:
        again = "the earlier trial is" if count == 1 else f"all {count} earlier trials are"
        return f"What is searched has changed; {again} used again."
    missing = _missing_values(changed.others, space) or ("their combination of values",)
    why = f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} no longer searched"
    return (
        f"What is searched has changed: {used} of {plural(count, 'earlier trial')} "
        f"{'is' if used == 1 else 'are'} used again; "
        f"{count - used} not, as {why}; the journal keeps them."
    )


def _missing_values(others: Sequence[Record], space: SearchSpace) -> tuple[str, ...]:
    missing: dict[str, None] = {}
    for record in others:
        candidate = record.trial.candidate
        for name, column in space.table.columns:
            value = dict(candidate.extras).get(name, getattr(candidate.layout, name, None))
            known = getattr(space.baseline.layout, name, value) == value
            if value is None or known or name in _DERIVED:
                continue
            code = column.code_of(value)
            if code is None or not (column.codes == code).any():
                missing[f"{name} {getattr(value, 'value', value)}"] = None
    return tuple(missing)


def trace_refused(job: TuningJob, plan: LaunchPlan) -> TracedScript | None:
    """Trace the script of a profile run that ran out of memory; None if that fails, too."""
    limit_s = min(_TIME_LIMIT_S, job.request.trial_timeout_s, max(1.0, job.budget.left_s))
    why = "Your configuration runs out of memory"
    try:
        script = trace_script(command_of_plan(plan), limit_s, job.listener)
    except NothingFeasibleError as error:
        last_line = error.log_tail[-1:] if str(error).endswith(":") else ()
        text = f"{why}, and its model could not be traced without a GPU: "
        text += " ".join((str(error), *last_line))
        job.listener(Note(text=text, warning=True))
        return None
    write_json(
        job.paths.profile / FIRST_FORWARD_FILE, own_secrets().document(encode(script.found))
    )
    how = "fake weights" if script.found.fake else "one pass on the CPU"
    job.listener(Note(text=f"{why}, so its model is described by a trace with {how}."))
    return script


def read_traced(job: TuningJob) -> TracedScript | None:
    """The trace that an earlier session kept."""
    try:
        document = json.loads(read_file(job.paths.profile / FIRST_FORWARD_FILE))
        return describe_script(job.request.script, decode(FirstForward, document))
    except (OSError, ValueError, RecursionError, DecodeError, ResultsFolderError):
        return None


def with_traced(job: TuningJob, script: TracedScript) -> TuningJob:
    """The job with the optimizer and the precision of an external script's own pass."""
    if not job.dialect.is_external:
        return job
    optimizer = replace(Optimizer.from_name(script.optimizer), states=script.states)
    workload = replace(job.user.workload, optimizer=optimizer, precision=script.found.precision)
    return replace(job, user=replace(job.user, workload=workload))
