"""The regret of a table's choices, and their run at sizes that were not searched."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from runner.command.plan import PreparedJob
from runner.request.chooser import BEST
from runner.request.compose import ComposedJob
from runner.request.composer import Composer
from runner.request.sizes import format_bytes
from runner.request_error import RequestError
from symlab.speed.tune.jobs import FINALS_USUAL, baselines_of, composed_as, unless
from symlab.speed.tune.regret import WORLDS, regrets, report, unseen_sizes
from symlab.speed.tuned.table import Table


def show_regret(places: Sequence[Path], least_worlds: int = WORLDS) -> int:
    from reports.record.bundle import read as read_records

    try:
        said, is_small = report(regrets(read_records(places)), least_worlds)
    except ValueError as error:
        raise RequestError(f"{error} (--regret)") from None
    print(said)
    return 0 if is_small else 1


def unseen(composer: Composer, job: PreparedJob, table: Table, place: Path, number: int, seed: int = 0) -> ComposedJob:
    """The job of sizes that were not searched. RequestError for an op that the table does not have."""
    op = job.request.op
    ranks = job.request.world_size
    own = [one for one in table.entries if (one.op, one.ranks) == (op, ranks)]
    if not own:
        raise RequestError(
            f"{place} has no entry of {op} on {ranks} (op, world_size), search it first: symlab tune op={op} "
            f"world_size={ranks}"
        )
    low, high = min(one.size_bytes for one in own), max(one.size_bytes for one in own)
    sizes = unseen_sizes(low, high, 128, seed)
    if not sizes:
        raise RequestError(
            f"{place} has no sizes of {op} that were not searched, between {format_bytes(low)} and "
            f"{format_bytes(high)} (--unseen), search a range of sizes first: symlab tune op={op} -o {place}"
        )
    names = dict.fromkeys([BEST, *job.request.algorithms, *(one.choice.name for one in own)])
    more = [f"tuned='{place}'", *unless(job, FINALS_USUAL)]
    return composed_as(composer, job, list(names), sizes, number, more, baselines_of(job))
