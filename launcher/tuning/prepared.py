"""From a job that was read to a study that can be asked: the profile run, the space, predictions.

Not: trials.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from autoconf_launch.autotuner.cost import (
    knob_rules,
    memory_rule,
    predict,
    state_beyond_memory,
    weights_beyond_memory,
)
from autoconf_launch.autotuner.measurement import EFFORTS
from autoconf_launch.autotuner.search import Study, baseline_trial
from autoconf_launch.autotuner.space import OBJECTIVES, Record, build_space
from autoconf_launch.autotuner.strategies import ModelBased, PastTime, load_strategy, times_of
from autoconf_launch.core import MODEL_INFO_FILE, ModelSpec, NothingFeasibleError

from ..backends import Backend
from ..events import ModelProfiled, Note, SpaceBuilt
from ..machine import Share
from ..results import OpenFolder, key_of, read_past, remember
from .job import TuningJob, search_limits
from .plain_start import check_ranks, profile_failed
from .profile_run import ProfileFailedError, read_model_info, refused_weights, run_profile
from .trial_io import TrialFiles


def profiled(
    job: TuningJob, files: TrialFiles, backend: Backend, folder: OpenFolder, share: Share
) -> ModelSpec | None:
    """The model as the user's settings, an earlier session or a profile run tells it.

    Raises:
        ProfileFailedError: the script does not run as it is.
        OtherStartError: it may, if it is started otherwise.
    """
    given = job.user.settings.known_model()
    if given is not None:
        text = "The model is described by autotuning.model_info; the profile run is skipped."
        job.listener(Note(text=text))
        return given
    event = ModelProfiled(spec=read_model_info(job.paths.profile / MODEL_INFO_FILE), wall_s=None)
    if not folder.contents.profiled:
        plan = files.plan_profile(baseline_trial(job.user.baseline), uuid.uuid4().hex)
        try:
            event = run_profile(
                share.place(plan, alone=True),
                backend,
                journal=folder.journal,
                timeout_s=job.request.trial_timeout_s,
                listener=job.listener,
            )
        except ProfileFailedError as error:
            ranks = len(job.cluster.devices)
            raise profile_failed(
                job.request, job.dialect, job.source, ranks=ranks, error=error
            ) from error
        check_ranks(job.request, job.cluster, plan.task)
    job.listener(event)
    return event.spec


def past_of(job: TuningJob, spec: ModelSpec | None, folder: OpenFolder) -> tuple[PastTime, ...]:
    """What earlier tunes measured: as the journal has it, or the user's file where it is new."""
    if not job.request.history or spec is None:
        return ()
    past = folder.contents.past
    if not past and not folder.contents.history:
        past = read_past(key_of(spec, job.cluster, job.dialect.name))
        if past:
            folder.journal.write_past(past)
    if past:
        text = (
            f"Starting from {len(past)} step times that earlier tunes of this model measured on "
            "this hardware (--no-history ignores them)."
        )
        job.listener(Note(text=text))
    return past


def remember_times(job: TuningJob, spec: ModelSpec | None, records: Sequence[Record]) -> None:
    """Keep for later tunes what this one measured."""
    if job.request.history and spec is not None:
        remember(key_of(spec, job.cluster, job.dialect.name), times_of(records))


def study_of(job: TuningJob, spec: ModelSpec | None, past: tuple[PastTime, ...] = ()) -> Study:
    """The candidates with what is predicted of them; says what was left out and why.

    Raises:
        NothingFeasibleError: no rank can hold the weights, or a model's state in our runtime.
    """
    user = job.user
    space = build_space(user.baseline, user.choices, user.batch_rule, user.settings)
    for text in space.notes:
        if text not in job.said:  # the profile run may have told another accumulation
            job.listener(Note(text=text))
    if job.dialect.is_external:  # these may shard or offload in ways of their own
        too_large = weights_beyond_memory(space, refused_weights(job.paths.profile))
    else:
        too_large = state_beyond_memory(space, spec, job.cluster, user.facts)
    if too_large:
        raise NothingFeasibleError(too_large)
    predictions = predict(space.table, spec, job.cluster, user.facts)
    rules = [memory_rule(predictions, job.cluster), *knob_rules(spec)]
    strategy = load_strategy(user.settings.tuner_type, OBJECTIVES[user.settings.metric])
    study = Study(
        space,
        predictions,
        user.settings,
        strategy=strategy.knowing(past) if isinstance(strategy, ModelBased) else strategy,
        rules=rules,
        limits=search_limits(job.request, job.cluster, EFFORTS[user.settings.effort]),
    )
    rejected = sum(count for _, count in study.rejected)
    considered = len(space.table) + sum(count for _, count in space.rejected)
    job.listener(
        SpaceBuilt(considered=considered, left=considered - rejected, rejected=study.rejected)
    )
    return study
