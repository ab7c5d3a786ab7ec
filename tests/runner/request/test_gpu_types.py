"""fabric.gpu: which GPU's limits hold, from a name, a file, or numbers; and that what is composed says them itself."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from runner.gpu.names import gpu_names
from runner.gpu.reading import gpu_type
from runner.request.compose import ComposedJob, compose_jobs, hydra_over
from runner.request.configured import configured, merged, plain_configuration
from runner.request.gpu_types import arch_of, check_arch
from runner.request.usage import usage
from runner.request.validate import validate
from runner.request.words import words_for
from runner.request_error import RequestError
from runner.world.fabrics import FabricName, HostOffer, resolve, settings
from simulator.gpu import Gpu

H100 = dataclasses.asdict(gpu_type("h100").limits)


WHY = "'assumed: a test'"


def composed(*arguments: str, multirun: bool = False, config_dir: Path | None = None) -> tuple[ComposedJob, ...]:
    with hydra_over(config_dir):
        return compose_jobs(arguments, multirun)


def refusal(*arguments: str, config_dir: Path | None = None) -> str:
    with pytest.raises(RequestError) as caught:
        composed(*arguments, config_dir=config_dir)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def write(folder: Path, name: str, text: str) -> Path:
    (folder / "gpu").mkdir(exist_ok=True)
    (folder / "gpu" / f"{name}.yaml").write_text(text)
    return folder


def test_there_is_none_by_default() -> None:
    (job,) = composed()
    assert job.request.fabric.gpu is None
    assert job.configuration["fabric"]["gpu"] is None
    assert "gpu" not in settings(resolve(job.request.fabric, 2, machine=lambda: HostOffer(0, "none", False))[0])


def test_the_composed_configuration_has_the_numbers() -> None:
    (job,) = composed("fabric=simulator", "fabric.gpu=h100")
    assert job.configuration["fabric"]["gpu"] == H100
    assert job.request.fabric.gpu == Gpu(**H100)
    assert settings(job.request.fabric)["gpu"] == H100
    assert job.overrides == ("fabric=simulator", "fabric.gpu=h100")


def test_a_configuration_with_numbers_means_the_same() -> None:
    """As a record has it: from there a replay takes it."""
    (job,) = composed("fabric=simulator", "fabric.gpu=h200")
    again = validate(merged(job.configuration))
    assert again.fabric == job.request.fabric
    assert plain_configuration(configured(job.configuration)) == job.configuration


def test_an_older_configuration_without_the_key_has_none() -> None:
    (job,) = composed()
    older = {**job.configuration, "fabric": {k: v for k, v in job.configuration["fabric"].items() if k != "gpu"}}
    assert validate(merged(older)).fabric.gpu is None


def test_a_sweep_over_gpus() -> None:
    jobs = composed("fabric=simulator", "fabric.gpu=h100,h200,null", "world_size=2,4", multirun=True)
    names = [job.request.fabric.gpu.name if job.request.fabric.gpu else "" for job in jobs]
    assert names == ["h100", "h100", "h200", "h200", "", ""]


@pytest.mark.slow
def test_a_gpu_of_ones_own(tmp_path: Path) -> None:
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


def test_numbers_on_the_command_line() -> None:
    (job,) = composed("fabric=simulator", "fabric.gpu={name: few, like: h100, multiprocessors: 3}")
    assert job.request.fabric.gpu == dataclasses.replace(Gpu(**H100), name="few", multiprocessors=3)


@pytest.mark.slow
def test_a_gpus_architecture_is_simulated() -> None:
    """So that a sweep can go over GPUs; unless another one is asked for."""
    jobs = composed("fabric=simulator", "fabric.gpu=h100,b200,a100", multirun=True)
    assert [job.request.fabric.arch for job in jobs] == ["sm_90a", "sm_100a", "sm_80"]
    assert [job.configuration["fabric"]["arch"] for job in jobs] == ["sm_90a", "sm_100a", "sm_80"]
    assert refusal("fabric=simulator", "fabric.gpu=b200", "fabric.arch=sm_90a") == (
        "b200 is sm_100, and sm_90a is simulated (fabric.arch, fabric.gpu), give sm_100a"
    )
    assert "h100 is sm_90, and sm_100a is simulated" in refusal("fabric.gpu=h100", "fabric.arch=sm_100a")
    for arch in ("sm_100a", "sm_100f", "sm_100"):
        (job,) = composed("fabric=simulator", "fabric.gpu=gb200", f"fabric.arch={arch}")
        assert job.request.fabric.arch == arch


def test_gpus_have_their_own_limits() -> None:
    assert refusal("fabric=nvshmem", "fabric.gpu=h100") == (
        "GPUs have limits of their own (fabric.gpu), leave it out, or use fabric=simulator"
    )


def test_where_the_fabric_is_open_it_asks_for_the_simulator() -> None:
    """Also on a machine with GPUs: there it would be ignored."""
    (job,) = composed("fabric.gpu=h100")
    offer = HostOffer(gpu_count=8, driver_problem="", gpu_extra=True)
    assert resolve(composed()[0].request.fabric, 2, machine=lambda: offer)[0].name is FabricName.nvshmem
    found, why = resolve(job.request.fabric, 2, machine=lambda: offer)
    assert (found.name, why) == (FabricName.simulator, "fabric.gpu asked for")


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("h10", "unknown GPU 'h10' (fabric.gpu), did you mean h100?"),
        ("[h100]", "['h100'] is no GPU (fabric.gpu), give null, or a100, b200, gb200, gb200_nvl72, h100, h200"),
        ("7", "7 is no GPU (fabric.gpu), give null, or a100, b200, gb200, gb200_nvl72, h100, h200"),
        ("{like: 7}", "7 is no GPU to be like (fabric.gpu), give null, or a100, "),
        ("{like: x}", "unknown GPU 'x' (fabric.gpu), known: a100, b200, gb200, gb200_nvl72, h100, h200"),
        ("{name: few}", "a GPU without arch (fabric.gpu), give it, or like: and the name of another GPU"),
        ("{like: h100, sms: 3}", "unknown key 'sms' of a GPU (fabric.gpu), known: arch, "),
        (
            "{like: h100, multiprocessors: 0}",
            "0 is no number for multiprocessors (fabric.gpu), give a whole number, 1 or more",
        ),
        ("{like: h100, multiprocessors: true}", "True is no number for multiprocessors (fabric.gpu)"),
        ("{like: h100, partitions: many}", "'many' is no number for partitions (fabric.gpu), give a whole "),
        ("{like: h100, name: 4}", "4 is no name (fabric.gpu), give text"),
        ("{like: h100, arch: hopper}", "'hopper' is no architecture (fabric.gpu), give one such as sm_90"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(given: str, text: str) -> None:
    assert text in refusal("fabric=simulator", f"fabric.gpu={given}")


def test_files_that_describe_none(tmp_path: Path) -> None:
    write(tmp_path, "round", "like: trip\n")
    write(tmp_path, "trip", "like: round\n")
    write(tmp_path, "list", "[1, 2]\n")
    write(tmp_path, "broken", "name: [\n")
    assert "the GPU round is like itself (fabric.gpu)" in refusal("fabric.gpu=round", config_dir=tmp_path)
    assert "describes no GPU (fabric.gpu), write it as" in refusal("fabric.gpu=list", config_dir=tmp_path)
    assert "broken.yaml can't be read: " in refusal("fabric.gpu=broken", config_dir=tmp_path)


def test_help_and_completion_name_them(tmp_path: Path) -> None:
    write(tmp_path, "mine", "like: h100\n")
    assert "fabric.gpu=null" in usage()
    assert "whose limits hold, a100, b200, gb200, gb200_nvl72, h100, h200;" in " ".join(usage().split())
    assert "gb200_nvl72, h100, h200, mine;" in " ".join(usage(tmp_path).split())
    texts = [word.text for word in words_for("fabric.gpu=", (), tmp_path)]
    assert texts == [f"fabric.gpu={name}" for name in ("null", *gpu_names(), "mine")]
    assert [word.text for word in words_for("fabric.gpu=h100,h2")] == ["fabric.gpu=h100,h200"]


@pytest.mark.parametrize(
    ("arch", "full"),
    [("sm_75", "sm_75"), ("sm_89", "sm_89"), ("sm_90", "sm_90a"), ("sm_100", "sm_100a"), ("sm_120", "sm_120a")],
)
def test_architectures_from_9_on_have_features_of_their_own(arch: str, full: str) -> None:
    gpu = Gpu(**{**H100, "arch": arch})
    assert arch_of(gpu) == full
    check_arch(gpu, full)
