"""Links and cards that stages cross on nodes that differ, and how they are shared.

Ranks are numbered as Megatron-LM does (tensor, context, data, pipeline) and fill the nodes in
order, so that a stage is a run of slots. Its data-parallel rings, one for each of its tensor
ranks, cross the cards of its nodes if it has several; all rings that cross a card divide it, and
the slowest card sets their rate. A stage inside one node pays for no network.

Shapes: O = orders of nodes, N = nodes, S = stages, B = borders between stages, K = kinds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from ..cost import SENT, Machine, crossed_rails, has_rails
from ..space import Floats, Ints
from .kinds import MachineKind


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StagePlaces:
    """Places of the stages of pipelines, one row for each order of nodes that differs.

    Attributes:
        ranks_OSK: most ranks that a stage has in one node of a kind; 0 if it has none there.
        nodes_OS: nodes that a stage has ranks in.
        card_s_OS: seconds in which all rings of a stage get a byte through the slowest of its
            cards; 0 if they cross none.
        rails_OS: ``card_s_OS`` if rings cross rails, which they do with several ranks in a node.
        send_s_OB: seconds in which all ranks of a stage get a byte each to the next stage.
        cards_s_O: seconds in which the busiest card sends a byte of each rank to both neighbours.
        tied_s_O: seconds in which all ranks of the first and the last stage exchange a byte each.
    """

    ranks_OSK: Ints
    nodes_OS: Ints
    card_s_OS: Floats
    rails_OS: Floats
    send_s_OB: Floats
    cards_s_O: Floats
    tied_s_O: Floats

    def take(self, rows: Ints) -> StagePlaces:
        """Some rows by number."""
        return StagePlaces(**{one.name: getattr(self, one.name)[rows] for one in fields(self)})

    @staticmethod
    def join(places: Sequence[StagePlaces]) -> StagePlaces:
        """Rows of several, one after the other."""
        names = [one.name for one in fields(StagePlaces)]
        return StagePlaces(**{n: np.concatenate([getattr(x, n) for x in places]) for n in names})

    def distinct(self) -> tuple[Ints, Ints]:
        """The first of each run of equal rows, and which of those each row equals."""
        columns = [getattr(self, one.name).reshape(len(self.tied_s_O), -1) for one in fields(self)]
        whole = np.ascontiguousarray(np.hstack(columns), np.float64)
        keys = whole.view(np.dtype((np.void, whole.dtype.itemsize * whole.shape[1]))).reshape(-1)
        _, first, which = np.unique(keys, return_index=True, return_inverse=True)
        return first, which


def cards_bytes_per_s(machine: Machine) -> float:
    """Rate of all cards of one node together."""
    reached = machine.physics.network_fraction * machine.fabric.rate
    return machine.node_network_bytes_per_s * reached


def place_stages(
    order_ON: Ints, kinds: Sequence[MachineKind], *, stages: int, stage_ranks: int
) -> StagePlaces:
    """Places of pipelines of ``stages`` stages of ``stage_ranks`` ranks that fill all nodes."""
    gpus_ON = np.array([kind.gpus for kind in kinds])[order_ON]
    end_ON = np.cumsum(gpus_ON, axis=1)
    nodes = _Nodes(
        start_ON=end_ON - gpus_ON,
        end_ON=end_ON,
        card_s_ON=np.array([1.0 / cards_bytes_per_s(x.machine) for x in kinds])[order_ON],
        link_s_ON=np.array([1.0 / (SENT * x.machine.link.bytes_per_s) for x in kinds])[order_ON],
    )
    here_OSN = nodes.slots(np.arange(stages) * stage_ranks, stage_ranks)
    crosses_OS = (here_OSN > 0).sum(axis=2) > 1
    rings_OSN = (here_OSN > 0) & crosses_OS[:, :, None]
    card_OSN = rings_OSN * (rings_OSN.sum(axis=1) * nodes.card_s_ON)[:, None, :]
    railed_ON = np.array([has_rails(kind.machine) for kind in kinds])[order_ON]
    crossed_ON = np.array([crossed_rails(kind.machine) for kind in kinds])[order_ON]
    rails_OSN = card_OSN * np.where(railed_ON, 1.0 / crossed_ON, 1.0)[:, None, :]
    send_s_OB, cards_s_O = nodes.sends_s(stages, stage_ranks)
    mine_ONK = order_ON[:, :, None] == np.arange(len(kinds))
    return StagePlaces(
        ranks_OSK=(here_OSN[:, :, :, None] * mine_ONK[:, None]).max(axis=2),
        nodes_OS=(here_OSN > 0).sum(axis=2),
        card_s_OS=card_OSN.max(axis=2),
        rails_OS=rails_OSN.max(axis=2),
        send_s_OB=send_s_OB,
        cards_s_O=cards_s_O,
        tied_s_O=nodes.exchange_s(here_OSN[:, 0], here_OSN[:, -1]),
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Nodes:
    """Slots of nodes in order, and seconds for a byte over their cards and links."""

    start_ON: Ints
    end_ON: Ints
    card_s_ON: Floats
    link_s_ON: Floats

    def slots(self, first_S: Ints, count: int) -> Ints:
        """Slots of each node among ``count`` slots from each of ``first_S`` on."""
        first = first_S[None, :, None]
        inside = np.minimum(self.end_ON[:, None], first + count)
        return np.asarray(np.maximum(inside - np.maximum(self.start_ON[:, None], first), 0))

    def sends_s(self, stages: int, stage_ranks: int) -> tuple[Floats, Floats]:
        """Seconds of a byte of each rank across each border, and through the busiest card.

        Both ends' cards are shared. Activations leave a node over the cards by which gradients
        come in, and the other way round.
        """
        start, end = self.start_ON[:, None], self.end_ON[:, None]
        first = (np.arange(stages - 1) * stage_ranks)[None, :, None]
        last = first + stage_ranks
        leaving = np.minimum(end, last) - np.maximum(np.maximum(start, end - stage_ranks), first)
        leaving = np.maximum(leaving, 0)
        coming = np.minimum(np.minimum(end, start + stage_ranks), last + stage_ranks)
        coming = np.maximum(coming - np.maximum(start, last), 0)
        cards = np.maximum(leaving, coming) * self.card_s_ON[:, None]
        inside = self.slots((np.arange(stages - 1)) * stage_ranks, stage_ranks) > leaving
        links = inside * self.link_s_ON[:, None]
        busy = ((leaving + coming) * self.card_s_ON[:, None]).sum(axis=1).max(axis=1)
        return np.asarray(np.maximum(cards, links).max(axis=2, initial=0.0)), np.asarray(busy)

    def exchange_s(self, first_ON: Ints, last_ON: Ints) -> Floats:
        """Seconds of a byte between the ranks of two stages; over a link if both share a node.

        All ranks of a node send at once, each to its own partner.
        """
        ranks = np.maximum(first_ON, last_ON)
        alone = (ranks > 0).sum(axis=1) == 1
        cards = (ranks * self.card_s_ON).max(axis=1)
        links = ((ranks > 0) * self.link_s_ON).max(axis=1)
        return np.asarray(np.where(alone, links, cards))
