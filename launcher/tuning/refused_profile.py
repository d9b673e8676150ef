"""A model whose profile run ran out of memory, as a trace of its script describes it.

The trace runs the script up to its first backward pass on this machine's CPU with fake weights, as
``fit`` does.
"""

from __future__ import annotations

import json
from dataclasses import replace

from autoconf_launch.core import (
    FIRST_FORWARD_FILE,
    DecodeError,
    FirstForward,
    NothingFeasibleError,
    Optimizer,
    ResultsFolderError,
    decode,
    encode,
)

from ..events import Note
from ..first_forward import TracedScript, command_of_plan, describe_script, trace_script
from ..plan import LaunchPlan
from ..results import own_secrets, read_file
from .job import TuningJob
from .trial_io import write_json

_TIME_LIMIT_S = 180.0


def trace_refused(job: TuningJob, plan: LaunchPlan) -> TracedScript | None:
    """Trace the script of a profile run that ran out of memory; None if that fails, too.

    Args:
        job: the result is kept in its folder of the profile run.
        plan: of the profile run.
    """
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
