"""fabric.gpu: which GPU's limits hold, from a name, a file, or numbers; and that what is composed says them itself."""

import dataclasses

import pytest

from runner.gpu.reading import gpu_type
from runner.request.compose import compose_jobs, hydra_over
from runner.request.composer import Composer
from runner.request.configured import configured, merged, plain_configuration
from runner.request.validate import validate
from runner.request_error import RequestError
from runner.world.fabrics import FabricName, HostOffer, resolve, settings
from simulator.gpu import Gpu
from tests.golden import refused, same_text
from tests.runner.conftest import refusals

H100 = dataclasses.asdict(gpu_type("h100").limits)


WHY = "'assumed: a test'"


def composed(*arguments, multirun=False, config_dir=None):
    with hydra_over(config_dir):
        return compose_jobs(arguments, multirun)


def write(folder, name, text):
    (folder / "gpu").mkdir(exist_ok=True)
    (folder / "gpu" / f"{name}.yaml").write_text(text)
    return folder


def test_there_is_none_by_default_and_in_older_configurations():
    (job,) = composed()
    assert job.request.fabric.gpu is None
    assert job.configuration["fabric"]["gpu"] is None
    assert "gpu" not in settings(resolve(job.request.fabric, 2, machine=lambda: HostOffer(0, "none", False))[0])
    older = {**job.configuration, "fabric": {k: v for k, v in job.configuration["fabric"].items() if k != "gpu"}}
    assert validate(merged(older)).fabric.gpu is None


def test_the_composed_configuration_has_the_numbers():
    (job,) = composed("fabric=simulator", "fabric.gpu=h100")
    assert job.configuration["fabric"]["gpu"] == H100
    assert job.request.fabric.gpu == Gpu(**H100)
    assert settings(job.request.fabric)["gpu"] == H100
    assert job.overrides == ("fabric=simulator", "fabric.gpu=h100")
    again = validate(merged(job.configuration))  # as a record has it: from there a replay takes it
    assert again.fabric == job.request.fabric
    assert plain_configuration(configured(job.configuration)) == job.configuration


@pytest.mark.slow
def test_a_gpu_of_ones_own(tmp_path):
    """In DIR/gpu, beside those of conf/, like another one; and from an experiment."""
    write(tmp_path, "mine", f"like: h100\nlimits: {{multiprocessors: {{value: 16, source: {WHY}}}}}\n")
    write(tmp_path, "mig", f"like: mine\nlimits: {{blocks_per_multiprocessor: {{value: 4, source: {WHY}}}}}\n")
    write(tmp_path, "h100", "like: a100\n")
    (tmp_path / "exp").mkdir()
    (tmp_path / "exp" / "small.yaml").write_text("# @package _global_\n# small\nfabric: {name: simulator, gpu: mig}\n")
    (job,) = composed("fabric=simulator", "fabric.gpu=mine", config_dir=tmp_path)
    assert job.configuration["fabric"]["gpu"] == {**H100, "name": "mine", "multiprocessors": 16}
    (job,) = composed("+exp=small", config_dir=tmp_path)
    of_mig = {**H100, "name": "mig", "multiprocessors": 16, "blocks_per_multiprocessor": 4}
    assert job.configuration["fabric"]["gpu"] == of_mig
    (job,) = composed("+exp=small", "fabric.gpu=h100", config_dir=tmp_path)
    assert job.configuration["fabric"]["gpu"] == H100, "of two files of one name that of conf/ counts"
    (job,) = composed("+exp=small", "fabric.gpu=null", config_dir=tmp_path)
    assert job.request.fabric.gpu is None
    (job,) = composed("fabric=simulator", f"fabric.gpu={tmp_path}/gpu/mine.yaml")
    assert job.configuration["fabric"]["gpu"] == {**H100, "name": "mine", "multiprocessors": 16}


@pytest.mark.slow
def test_a_gpus_architecture_is_simulated():
    """So that a sweep can go over GPUs; unless another one is asked for."""
    jobs = composed("fabric=simulator", "fabric.gpu=h100,b200,a100", multirun=True)
    assert [job.request.fabric.arch for job in jobs] == ["sm_90a", "sm_100a", "sm_80"]
    assert [job.configuration["fabric"]["arch"] for job in jobs] == ["sm_90a", "sm_100a", "sm_80"]
    for arch in ("sm_100a", "sm_100f", "sm_100"):
        (job,) = composed("fabric=simulator", "fabric.gpu=gb200", f"fabric.arch={arch}")
        assert job.request.fabric.arch == arch


def test_where_the_fabric_is_open_it_asks_for_the_simulator():
    """Also on a machine with GPUs: there it would be ignored."""
    (job,) = composed("fabric.gpu=h100")
    offer = HostOffer(gpu_count=8, driver_problem="", gpu_extra=True)
    assert resolve(composed()[0].request.fabric, 2, machine=lambda: offer)[0].name is FabricName.nvshmem
    found, why = resolve(job.request.fabric, 2, machine=lambda: offer)
    assert (found.name, why) == (FabricName.simulator, "fabric.gpu asked for")


WRONG = ("h10", "[h100]", "7", "{like: h100, multiprocessors: 4}", "round", "list", "broken")


def test_what_is_wrong_is_said_in_a_line(tmp_path):
    for name, text in {"round": "like: trip", "trip": "like: round", "list": "[1, 2]", "broken": "name: ["}.items():
        write(tmp_path, name, f"{text}\n")
    said = []
    with hydra_over(tmp_path):
        composer = Composer()
        for given in WRONG:
            with pytest.raises(RequestError) as caught:
                composer.composition(["fabric=simulator", f"fabric.gpu={given}"])
            said.append(str(caught.value))
            assert "\n" not in said[-1]
    same_text("\n".join(said))


@pytest.mark.parametrize(
    "changes",
    [
        {"multiprocessors": 0},
        {"multiprocessors": True},
        {"partitions": "many"},
        {"name": 4},
        {"arch": "hopper"},
        {"sms": 3},
    ],
    ids=str,
)
def test_a_record_whose_limits_were_changed_is_refused(changes):
    (job,) = composed("fabric=simulator", "fabric.gpu=h100")
    job.configuration["fabric"]["gpu"] = {**H100, **changes}
    with refused(RequestError):
        validate(merged(job.configuration))


@pytest.mark.parametrize(
    "lines",
    [
        "fabric=nvshmem fabric.gpu=h100",
        "fabric.gpu=b200 fabric.arch=sm_90a",
        "fabric.gpu=b200 ++fabric.arch=sm_90a",
        "fabric.gpu=h100 fabric.arch=sm_100a",
    ],
)
def test_gpus_have_their_own_limits_and_architecture(lines):
    same_text(refusals(lines))
