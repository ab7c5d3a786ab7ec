"""NCCL's CSV: read back as NCCL's plugin reads it, held against the times that it was made of, and refused where
records do not hold what it says."""

import random
from dataclasses import replace

import pytest

from cases.record.nccl_settings import NcclAlgorithm, NcclProtocol
from cases.record.record import Status
from reports.export.nccl import ALGORITHMS, COLLECTIVES, LARGEST, PROTOCOLS, nccl_csv
from reports.record.bundle import digest
from tests.golden import refused
from tests.reports.export.sweeps import MODEL, OWN, RING_LL, SIZES, TREE_LL, blocks, nccl_record, sweep, timed, us
from tests.reports.export.tuner_reader import choice, rows
from tests.reports.synthetic import KIB, MIB, with_case, with_environment, with_request

BY_NAMES = {
    (ALGORITHMS[one.algorithm], PROTOCOLS[one.protocol]): one
    for one in MODEL
    if one.algorithm is not None and one.protocol is not None
}


def test_the_plugin_takes_the_fastest_setting_at_every_measured_size():
    text = nccl_csv(sweep())
    for size in SIZES:
        algorithm, protocol, channels = choice(text, "allreduce", size, 4)
        taken = BY_NAMES[algorithm, protocol]
        assert us(taken, size) <= 1.01 * min(us(one, size) for one in MODEL if one != OWN)
        assert channels == blocks(taken, size)


def test_between_the_measured_sizes_it_loses_less_than_the_target():
    """The invented times are known everywhere, so the choice can be held against the best at any size."""
    text = nccl_csv(sweep())
    source = random.Random(7)
    for _ in range(300):
        size = int(2 ** source.uniform(8, 30))
        algorithm, protocol, _ = choice(text, "allreduce", size, 4)
        assert us(BY_NAMES[algorithm, protocol], size) <= 1.02 * min(us(one, size) for one in MODEL if one != OWN)


def test_no_call_is_left_to_one_channel():
    """With a gap, or with -1 for channels, the plugin gives one channel."""
    found = rows(nccl_csv(sweep()))
    assert (found[0].least, found[-1].most) == (0, LARGEST)
    assert [row.least for row in found[1:]] == [row.most + 1 for row in found[:-1]]
    assert all(row.channels >= 1 for row in found)
    assert choice(nccl_csv(sweep()), "allreduce", 1 << 40, 4)[2] == 32
    assert choice(nccl_csv(sweep()), "allgather", KIB, 4) == ("", "", 1)
    assert choice(nccl_csv(sweep()), "allreduce", KIB, 8) == ("", "", 1), "another number of ranks has no line"
    assert "collectives without a line run with ONE channel" in nccl_csv(sweep())


def test_no_line_is_read_in_two_pieces():
    long = [with_request(one, command="a" * 300) for one in sweep()]
    assert max(map(len, nccl_csv(long).splitlines())) < 255
    assert len(rows(nccl_csv(long))) == len(rows(nccl_csv(sweep())))


def test_the_file_says_what_it_was_made_of():
    found = sweep()
    text = nccl_csv(found)
    assert f"records {digest(found)}" in text
    assert "4 x Invented GPU (sm_90a), bfloat16, graph, window kernel, L2 rotate" in text
    assert f"{len(found)} records, NCCL 0.0.0" in text
    assert "regret on sizes left out: " in text
    assert "MORE than the target" not in text
    assert "against NCCL's own choice, at the measured sizes: at worst " in text


def test_a_regret_beyond_the_target_is_said():
    """Of four sizes so far apart, those in between are guessed."""
    few = sweep((KIB, MIB, 16 * MIB, 256 * MIB))
    assert "MORE than the target of 2 %: measure more sizes" in nccl_csv(few)


def test_nothing_to_gain_is_said():
    even = [timed(one, us(OWN, one.case.size_bytes) / 1.05) if one.library == "NCCL 0.0.0" else one for one in sweep()]
    assert "NOTHING TO GAIN: at no measured size is it more than 2% faster" in nccl_csv(even)
    assert "NOTHING TO GAIN" not in nccl_csv(sweep())


def test_a_table_that_loses_to_nccls_own_choice_is_refused():
    """A sweep that has not what NCCL takes by itself: production would be slower."""
    with refused():
        nccl_csv(sweep(settings=(OWN, RING_LL, TREE_LL)))


def test_several_ops_have_lines_of_their_own():
    gathers = [with_case(one, op="all_gather", reduction="none") for one in sweep()]
    text = nccl_csv([*sweep(), *gathers])
    assert {row.collective for row in rows(text)} == {"allreduce", "allgather"}
    assert choice(text, "allgather", KIB, 4)[:2] == ("ring", "ll")


def test_ops_that_nccl_chooses_nothing_for_and_ops_without_a_sweep_have_no_lines():
    sends = [with_case(one, op="all_to_all", reduction="none") for one in sweep()]
    defaults = [with_case(one, op="reduce") for one in sweep(settings=(OWN,))]
    assert nccl_csv([*sweep(), *sends, *defaults]) == nccl_csv(sweep())


def simulated(one):
    return replace(one, timing=None, fabric=replace(one.fabric, simulated=True))


def failed(one):
    return replace(one, status=Status.FAILED, check=None, timing=None, reason="NCCL error")


def without_blocks(one):
    return replace(one, timing=replace(one.timing, kernel_blocks=None))


def test_what_failed_at_a_size_is_never_chosen():
    slow = [timed(one, 2e4) if one.library == "NCCL 0.0.0" else one for one in sweep()]
    found = [failed(one) if "Ring, LL, " in one.library and one.case.size_bytes == MIB else one for one in slow]
    assert ("ring", "ll") in {(row.algorithm, row.protocol) for row in rows(nccl_csv(slow))}
    assert ("ring", "ll") not in {(row.algorithm, row.protocol) for row in rows(nccl_csv(found))}


@pytest.mark.parametrize(
    "found",
    [
        [],
        sweep(settings=(OWN,)),
        [simulated(one) for one in sweep()],
        [failed(one) for one in sweep()],
        sweep(settings=tuple(one for one in MODEL if one != OWN)),
        sweep(SIZES[:3]),
        [without_blocks(one) for one in sweep()],
        [*sweep(), *(replace(one, library=one.library.replace("0.0", "0.1")) for one in sweep())],
        [*sweep(), *(with_case(one, dtype="float32") for one in sweep())],
        [*sweep(), *(nccl_record(OWN, size, world_size=2) for size in SIZES)],
        [*sweep(), *(with_case(one, placement="out_of_place") for one in sweep())],
        [*sweep(), *(with_case(one, offset=1) for one in sweep())],
        [*sweep(), *(with_case(one, inputs="edge") for one in sweep())],
        [with_environment(one, gpus=({"model": "Invented GPU"},)) for one in sweep()],
        [with_environment(one, variables={"allowed": {"NCCL_ALGO": "Tree"}}) for one in sweep()],
        [replace(one, library=RING_LL.named("NCCL 0.0.0")) if one.library == "NCCL 0.0.0" else one for one in sweep()],
    ],
)
def test_records_that_do_not_hold_it_are_refused_in_one_line(found):
    """The last are of NCCL's own choice, passed off as Ring, LL."""
    with refused() as caught:
        nccl_csv(found)
    assert "\n" not in str(caught.value)


def test_every_op_and_setting_has_the_plugins_name():
    from tests.reports.export import tuner_reader

    assert set(ALGORITHMS) == set(NcclAlgorithm)
    assert set(PROTOCOLS) == set(NcclProtocol)
    assert set(ALGORITHMS.values()) == set(tuner_reader.ALGORITHMS)
    assert set(PROTOCOLS.values()) == set(tuner_reader.PROTOCOLS)
    assert set(COLLECTIVES.values()) == set(tuner_reader.COLLECTIVES)
