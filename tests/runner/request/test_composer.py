"""One compose of Hydra's for many jobs: the same configurations and the same errors as Hydra's own compose of each."""

import random
import shutil

import pytest
from omegaconf import OmegaConf, open_dict

from runner.request import composer as composer_module
from runner.request.compose import compose_jobs, hydra_over
from runner.request.composer import Composer, composed
from runner.request.experiments import CONF
from runner.request_error import RequestError

MINE = """\
# @package _global_
# references, a section given in part, a list of sizes
defaults:
  - override /fabric: simulator

op: reduce_scatter
seed: ${world_size}
launches: ${oc.decode:${seed}}
sizes: [1K, 4K]
timing: {samples: 7}
track: {experiment: "${op} on ${world_size}"}
"""

OF_HYDRA = "# @package _global_\n# its records lie in a folder named by Hydra\nrecords: out/${hydra.job.name}\n"

BROKEN = "# @package _global_\n# a word where a number belongs\nworld_size: many\n"

GROUPS = (
    " / +exp=allreduce_bf16 / +exp=barrier / +exp=allreduce_gpus / +exp=accumulator_study / +exp=mine / "
    "fabric=simulator / fabric=nvshmem track=none / +exp=mine track=none fabric=nvshmem"
)

VALUES = (
    "seed=3 / 'op'=broadcast / op='all_gather' / op=\"reduce\" / dtype=bfloat16/native / baselines=null / "
    "algorithms=[one_shot,two_shot] / algorithms=[] / sizes.list=[1K,4K] / sizes.max=1M / "
    "sizes={min:1K,max:4K} / check=yes / deadline_s=1e2 / placement=in_place / timing.samples=5 / "
    "timing={mode:none,samples:9} / timing.calls=null / fabric.name=simulator / "
    "fabric={seed:7,schedule:random} / fabric.heap_bytes=1M / track.experiment='two words, a comma' / "
    "track.experiment=a\\,b / records=out/${op} / seed=${world_size} / records=${hydra.job.name} / "
    "launches=${timing.samples} / cache_dir=${oc.env:HOME}/cache"
)

WRONG = (
    "world_size=two / world_size=null / world_size=[2] / wurld_size=2 / sizes.mni=1K / sizes={mox:1K} / "
    "sizes=null / timing=null / timing=[1] / timing.mode=grph / inputs=random / fabric.nme=x / fabric=cuda / "
    "fabric=[] / check=maybe / op=[1] / op=${nowhere} / seed=${hydra.job.num} / +xyz=1 / ++seed=4 / "
    "++world_siz=2 / +seed=1 / ~op / ~sizes / ~sizes.max / ~fabric / hydra.foo=1 / hydra.mode=FAST / "
    "hydra.job.name=mine / +exp=broken / +exp=allreduce_bf17 / seed@here=1 / a b / seed / sizes.list.0=4"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder like conf/ with two more experiments."""
    folder = tmp_path_factory.mktemp("composer") / "conf"
    shutil.copytree(CONF, folder)
    (folder / "exp" / "mine.yaml").write_text(MINE)
    (folder / "exp" / "broken.yaml").write_text(BROKEN)
    (folder / "exp" / "of_hydra.yaml").write_text(OF_HYDRA)
    return folder


def resolved(config):
    try:
        return OmegaConf.to_container(config, resolve=True, enum_to_str=True)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def by_hydra(lines):
    """What Hydra's own compose makes of the lines: experiment, configuration as written and as resolved; or an
    error."""
    try:
        config = composed(lines)
    except RequestError as error:
        return ("error", str(error))
    experiment = str(config.hydra.runtime.choices.get("exp") or "")
    with open_dict(config):
        del config["hydra"]
    return (experiment, OmegaConf.to_yaml(config), resolved(config))


def by_composer(composer, lines):
    try:
        composition = composer.composition(lines)
    except RequestError as error:
        return ("error", str(error))
    return (composition.experiment, OmegaConf.to_yaml(composition.config), resolved(composition.config))


def samples(count):
    """Command lines in any order: a choice of groups, values, and now and then something wrong."""
    chosen = random.Random(11)
    groups, values, wrong = (text.split(" / ") for text in (GROUPS, VALUES, WRONG))
    found = [[line] for line in values + wrong]
    while len(found) < count:
        lines = [*chosen.choice(groups).split(), *chosen.sample(values, chosen.randint(1, 5))]
        if chosen.random() < 0.4:
            lines += chosen.sample(wrong, chosen.randint(1, 2))
        chosen.shuffle(lines)
        found.append(lines)
    return found


@pytest.mark.slow
def test_a_sample_of_command_lines_composes_as_with_hydra(folder, monkeypatch):
    monkeypatch.chdir(folder)
    apart = []
    kinds = set()
    with hydra_over(folder):
        composer = Composer()
        for lines in samples(110):
            expected = by_hydra(lines)
            kinds.add(expected[0] == "error")
            if by_composer(composer, lines) != expected:
                apart.append((lines, expected, by_composer(composer, lines)))
    assert apart == []
    assert kinds == {True, False}


@pytest.mark.slow
def test_a_sweep_is_one_compose_a_combination_of_groups(monkeypatch):
    seen = []

    def counted(lines):
        seen.append(tuple(lines))
        return composed(lines)

    monkeypatch.setattr(composer_module, "composed", counted)
    with hydra_over():
        jobs = compose_jobs(
            ["+exp=barrier,allreduce_fp16", "fabric=simulator", "fabric.seed=range(0,20)", "seed=1,2"], multirun=True
        )
    assert len(jobs) == 20 * 2 * (3 + 1)
    assert len(seen) <= 2 * 2, "one to look for a sweep, one for all jobs"


ORDERS = (
    "seed=3 seed=4 / seed=3 ++seed=4 / ++seed=4 seed=3 / launches=3 launches=${world_size} / "
    "timing.samples=3 ++timing={samples:4} / timing={samples:4} timing.samples=3 / op=reduce ~op / "
    "fabric.seed=4 fabric=simulator / fabric={seed:7} fabric.seed=4 fabric=simulator"
)
OF_HYDRAS_SECTION = (
    "records=${hydra.job.name} / +exp=of_hydra records=here / timing=${hydra.job} timing.samples=3 / "
    "+exp=of_hydra seed=${seed}"
)


SEVERAL = [line.split() for line in ORDERS.split(" / ")]
SEVERAL += [one[::-1] for one in SEVERAL] + [line.split() for line in OF_HYDRAS_SECTION.split(" / ")]


@pytest.mark.parametrize("lines", SEVERAL, ids=" ".join)
def test_the_order_of_lines_about_one_key_is_kept_and_interpolations_are_hydras(folder, lines):
    with hydra_over(folder):
        assert by_composer(Composer(), lines) == by_hydra(lines)


def test_a_folder_that_is_searched_may_make_a_group_of_a_key(folder, tmp_path):
    (tmp_path / "op").mkdir()
    (tmp_path / "op" / "wide.yaml").write_text("# @package _global_\nworld_size: 16\n")
    lines = [f"hydra.searchpath=[file://{tmp_path}]", "op=wide"]
    with hydra_over(folder):
        assert by_composer(Composer(), lines) == by_hydra(lines)
        assert by_hydra(lines)[0] == "error"
        chosen = [lines[0], "+op=wide"]
        assert by_composer(Composer(), chosen) == by_hydra(chosen)
        assert Composer().composition(chosen).config.world_size == 16
