"""``plan``: every layout of a training, ruled out or ranked.

``plan --model M --cluster C --seq S --global-batch B [flags]``, or for a script as it is
``plan --cluster C [flags] -- python train.py …``
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from autoconf_launch.core import ConfigError, NothingFeasibleError
from autoconf_launch.tuning_spaces import cluster_template

from ..estimates import (
    CLUSTER_TEMPLATE,
    PlanAnswer,
    PlanRequest,
    choose_price,
    parse_plan,
    plan_answer,
    require_equal_nodes,
)
from ..first_forward import (
    TracedScript,
    ask_plan,
    plan_by_pieces,
    split_command,
    why_no_pieces,
)
from ..report import (
    pieces_plan_document,
    pieces_plan_text,
    plan_csv,
    plan_document,
    plan_json,
    plan_text,
    script_document,
    script_text,
    why_nothing,
)


def plan(arguments: Sequence[str]) -> Iterator[str]:
    """Text to print.

    Raises:
        ConfigError: wrong arguments, an unknown name, unequal nodes, an unwritable file.
        NothingFeasibleError: no layout fits or is within the limits; all has been yielded by then.
    """
    own, command = split_command(arguments)
    if CLUSTER_TEMPLATE in own:
        yield cluster_template().rstrip("\n")
        return
    if command is not None:
        yield from _plan_script(own, command)
        return
    yield from _plan_known(parse_plan(own), None)


def _plan_script(own: Sequence[str], command: Sequence[str]) -> Iterator[str]:
    request, script = ask_plan(parse_plan(own, of_script=True), command)
    if script.architecture is not None:
        yield from _plan_known(request, script)
        return
    require_equal_nodes(request.training.cluster)
    found = plan_by_pieces(request, script)
    price = choose_price(request.usd_per_gpu_hour, request.training.cluster)
    hourly = None if price is None else price.usd_per_gpu_hour
    as_json = request.training.json
    yield pieces_plan_document(found, hourly) if as_json else pieces_plan_text(found)
    if not found.best:
        raise NothingFeasibleError(why_no_pieces(found))


def _plan_known(request: PlanRequest, script: TracedScript | None) -> Iterator[str]:
    answer = plan_answer(request)
    if request.csv is not None:
        _write(request, answer)
    if request.training.json:
        section = {} if script is None else {"script": script_document(script)}
        yield plan_json({**plan_document(answer), **section})
    else:
        text = plan_text(answer)
        yield text if script is None else f"{script_text(script)}\n\n{text}"
    if not answer.plan.best:
        raise NothingFeasibleError(why_nothing(answer))


def _write(request: PlanRequest, answer: PlanAnswer) -> None:
    assert request.csv is not None
    try:
        with request.csv.open("w", newline="", encoding="utf-8") as file:
            plan_csv(answer, file)
    except OSError as error:
        raise ConfigError(f"--csv {request.csv} cannot be written: {error.strerror}.") from error
