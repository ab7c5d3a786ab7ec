"""Refusals on GPUs, decided again from the records alone: what is refused follows from the case and from what the
fabric could do, which both are in the record. Simulated cases run again anyway, see rerun.py."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cases.ops import collective
from cases.record.nccl_settings import asked_settings
from cases.record.record import FabricInfo, Record, Status
from kernels.baselines import Baseline, refuses_baseline
from kernels.spec import refuses
from memory.fabric import Traits
from runner.case.contestant import spec_for
from runner.case.nccl_settings import refuses_settings
from runner.case.todays_code import MALFORMED
from runner.request.validate import CUSTOM
from runner.request_error import first_line
from symlab.evidence.audit.items import Tally

_OF_THE_RANKS = "fabric"
"""Key of refusals that rest on which ranks reach each other, which records don't hold."""

_OF_THE_INSTALLATION = "baselines"
"""Key of refusals that rest on what was installed where the record was made, or could be compiled there."""


def refusals(records: Iterable[Record], sources: Mapping[str, str]) -> Tally:
    """Decide again what was refused on GPUs, by case; sources: the digests of today's. Cases differ that today's code
    does not refuse and that are recorded with today's kernels. Brought kernels are left out."""
    found = Tally()
    for record in records:
        fabric = record.fabric
        if record.status is not Status.REFUSED or fabric is None or fabric.simulated:
            continue
        if record.case.op == CUSTOM or record.request.brought:
            continue
        try:
            is_refused = _is_refused(record, fabric)
        except MALFORMED as error:
            found.unsure.append((record.id, first_line(error)))
            continue
        says = "it is REFUSED in the record, and nothing refuses it here"
        if is_refused:
            found.agree.append((record.id,))
        elif record.refusal is not None and record.refusal.key == _OF_THE_RANKS:
            found.unsure.append((record.id, "the record does not say which ranks reach each other"))
        elif record.refusal is not None and record.refusal.key == _OF_THE_INSTALLATION:
            found.unsure.append((record.id, f"{says}, where other libraries are installed"))
        elif (record.environment.sources or {}).get("kernels") != sources["kernels"]:
            found.unsure.append((record.id, f"{says}, by kernels that changed since"))
        else:
            found.different.append((record.id, says))
    return found


def _is_refused(record: Record, fabric: FabricInfo) -> bool:
    case = record.case
    traits = Traits(
        fabric.name,
        fabric.arch,
        fabric.world_size,
        fabric.heap_bytes,
        fabric.multicast,
        fabric.multicast_reason,
        description=fabric.description,
    )
    spec = spec_for(case)
    if isinstance(spec, Baseline):
        told = refuses_settings(asked_settings(record), case, traits)
        return (refuses_baseline(spec, case, traits) or told) is not None
    return refuses(spec, collective(case.op), case, traits) is not None
