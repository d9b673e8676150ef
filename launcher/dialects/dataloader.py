"""The dialect ``dataloader``: the micro-batch set inside ``DataLoader.__init__``, on request only.

The probe reads the variable in each rank. Not: a change of the script's arguments.
"""

from __future__ import annotations

from .any_script import recognised
from .base import Rendered, TrialNeeds
from .batch_names import batch_in_source
from .own_asides import with_own_asides
from .own_words import values_of
from .script_source_facts import ScriptSource
from .sheet import Variable
from .spelling import Spelled, Spelling
from .spellings.common import ACCUMULATION
from .table_dialect import TableDialect

DATALOADER_BATCH_VARIABLE = "AUTOCONF_LAUNCH_DATALOADER_BATCH"
"""Samples of each batch that a training DataLoader of a rank gives, instead of the script's."""


class DataLoaderDialect(TableDialect):
    """Scripts that set the batch in their source alone."""

    name = "dataloader"

    def detects(self, source: ScriptSource) -> bool:
        """Never by itself: it reaches into the script's process."""
        return source.words.dialect == self.name

    def table(self, source: ScriptSource, ranks: int) -> tuple[Spelled, ...]:
        """See TableDialect."""
        row = Spelling(
            knob="micro_batch",
            places=(Variable(DATALOADER_BATCH_VARIABLE),),
            default=_today(source),
        )
        own = recognised(source, "accumulation", ACCUMULATION, ranks)
        return (row,) if own is None else (row, own)

    def in_trial(self, rendered: Rendered, source: ScriptSource, needs: TrialNeeds) -> Rendered:
        """See own_asides; the probe keeps what is saved in the trial's folder."""
        return with_own_asides(super().in_trial(rendered, source, needs), source, needs)


def _today(source: ScriptSource) -> int | None:
    """The batch of the script's own DataLoader: a literal, a constant, or the user's first."""
    row = Spelling(knob="micro_batch", places=(Variable(DATALOADER_BATCH_VARIABLE),))
    listed = values_of(row, source.words.knobs)
    found: object = batch_in_source(source)
    found = listed[0] if found is None and listed else found
    return found if type(found) is int else None
