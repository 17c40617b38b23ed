"""Places of ranks in a parallel job, and the groups in which they may communicate."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from augury.core.errors import FileFormatError
from augury.ingest.formats.table.table_rows import TableRows


@dataclass(frozen=True, slots=True)
class PipelinePlace:
    """Data-parallel rank, pipeline stage, and lane: several ranks may share a stage and a
    data-parallel rank, as tensor- and context-parallel ones do, and are told apart by the lane."""

    dp_rank: int
    stage: int
    lane: int


@dataclass(frozen=True, slots=True)
class RankPlaces:
    """The place of each rank, and the rank at each place."""

    of_rank: dict[int, PipelinePlace]
    rank_at: dict[PipelinePlace, int]
    num_stages: int

    def peer(self, rank: int, offset: int) -> int | None:
        """Returns the rank of the same lane, ``offset`` stages away, around the ring of stages."""
        own = self.of_rank[rank]
        other = self.rank_at.get(
            PipelinePlace(own.dp_rank, (own.stage + offset) % self.num_stages, own.lane)
        )
        return None if other == rank else other

    def candidates(self, optype: str) -> Iterator[dict[int, tuple[int, ...]]]:
        """Yields groups that may carry a collective, the most likely first: for each rank, the
        ranks of its group."""
        everyone, stage, one_stage_lane, pipeline, place = (
            self._grouped(lambda _: ()),
            self._grouped(lambda at: (at.stage,)),
            self._grouped(lambda at: (at.stage, at.lane)),
            self._grouped(lambda at: (at.dp_rank, at.lane)),
            self._grouped(lambda at: (at.dp_rank, at.stage)),
        )
        if optype.startswith("embedding-"):
            yield self._ends()
            yield from (everyone, stage)
        elif optype.startswith("layernorm-"):
            yield from (place, stage)
        elif "clip" in optype or "norm" in optype or "barrier" in optype or "loss" in optype:
            yield from (everyone, pipeline, place)
        elif "params" in optype or "grads" in optype or "expert" in optype:
            yield from (stage, one_stage_lane, place)
        else:
            yield from (everyone, stage, one_stage_lane, pipeline, place)

    def _grouped(
        self, key: Callable[[PipelinePlace], tuple[int, ...]]
    ) -> dict[int, tuple[int, ...]]:
        members: dict[tuple[int, ...], list[int]] = defaultdict(list)
        for rank, place in sorted(self.of_rank.items()):
            members[key(place)].append(rank)
        return {rank: tuple(members[key(place)]) for rank, place in sorted(self.of_rank.items())}

    def _ends(self) -> dict[int, tuple[int, ...]]:
        """Groups of the first and the last stage, which share the embedding."""
        ends = {0, self.num_stages - 1}
        members: dict[tuple[int, int], list[int]] = defaultdict(list)
        for rank, place in sorted(self.of_rank.items()):
            if place.stage in ends:
                members[place.dp_rank, place.lane].append(rank)
        return {rank: tuple(own) for own in members.values() for rank in own}


def rank_places(rows: TableRows, name: str) -> RankPlaces:
    """Raises FileFormatError if a rank has two places."""
    ranks_at: dict[tuple[int, int], list[int]] = defaultdict(list)
    found: dict[int, tuple[int, int]] = {}
    seen = {*zip(rows.rank.tolist(), rows.dp_rank.tolist(), rows.stage.tolist(), strict=True)}
    for rank, dp_rank, stage in sorted(seen):
        if rank in found:
            raise FileFormatError(
                f"{name} has contradictory ranks and stages: rank {rank} has two places",
                remedy="give each rank one dp_rank and one stage",
            )
        found[rank] = dp_rank, stage
        ranks_at[dp_rank, stage].append(rank)
    width = max(map(len, ranks_at.values()))
    residues = {at: [rank % width for rank in ranks] for at, ranks in ranks_at.items()}
    # Ranks of one place are adjacent, so that the lanes are known even if some ranks are missing.
    by_residue = all(len({*own}) == len(own) for own in residues.values())
    of_rank = {
        rank: PipelinePlace(*at, rank % width if by_residue else lane)
        for at, ranks in ranks_at.items()
        for lane, rank in enumerate(ranks)
    }
    return RankPlaces(of_rank, {place: rank for rank, place in of_rank.items()}, rows.num_stages)
