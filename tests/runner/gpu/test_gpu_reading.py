"""Types of GPUs as data: every value has a source, what is wrong is one line, and floors say who measured them."""

import dataclasses
import pickle
import re

import pytest

from runner.gpu.gpu_type import Source, SourceKind
from runner.gpu.names import CONF, gpu_names
from runner.gpu.reading import SECTIONS, gpu_type, type_of_device
from runner.request_error import RequestError
from tests.golden import refused

H200 = gpu_type("h200")


def write(folder, text, name="mine"):
    (folder / "gpu").mkdir(exist_ok=True)
    path = folder / "gpu" / f"{name}.yaml"
    path.write_text(text)
    return path


@pytest.mark.parametrize("name", gpu_names())
def test_every_value_of_ours_has_a_source(name):
    found = gpu_type(name)
    keys = {f"{section}.{one.name}" for section, noun in SECTIONS.items() for one in dataclasses.fields(noun)}
    assert found.sources.keys() == keys - {"limits.name"}
    assert (found.name, found.limits.name) == (name, name)
    assert found.title
    assert found.switch.gpus >= 2
    assert pickle.loads(pickle.dumps(found)) == found


@pytest.mark.parametrize("name", [name for name in gpu_names() if name != "gb200_nvl72"])
def test_every_named_source_is_used(name):
    text = (CONF / "gpu" / f"{name}.yaml").read_text()
    sources, rest = text.split("limits:", 1)
    for one in re.findall(r"^  (\w+): '", sources, re.MULTILINE):
        assert f"source: {one}}}" in rest, one


def test_a_files_own_floors_take_the_place_of_all_that_it_is_like(tmp_path):
    assert gpu_type("b200").floors is None
    write(
        tmp_path,
        "like: h200\nfloors:\n  source: 'measured: 2026-12-01, a test'\n  ranks: 2\n"
        "  relaxed_us: 0.5\n  push_gbps: {8: 90, 1: 12.5}\n",
    )
    found = gpu_type("mine", (CONF, tmp_path)).floors
    assert (found.relaxed_us, found.records, found.source.text) == (0.5, (), "2026-12-01, a test")
    assert list(found.push_gbps.items()) == [(1, 12.5), (8, 90.0)]
    assert "load_own_l2_us" in found.missing
    assert "relaxed_us" not in found.missing


@pytest.mark.parametrize("name", ["h100", "h200"])
def test_types_that_were_measured_have_all_floors_and_their_records(name):
    found = gpu_type(name).floors
    assert found.missing == ()
    assert found.records


def test_like_takes_over_values_with_their_sources(tmp_path):
    why = "assumed: a matrix product leaves 16 of them"
    path = write(tmp_path, f"like: h200\nlimits:\n  multiprocessors: {{value: 16, source: '{why}'}}\n")
    found = gpu_type(str(path))
    assert found == gpu_type("mine", (CONF, tmp_path))
    assert (found.name, found.limits.multiprocessors) == ("mine", 16)
    assert found.sources["limits.multiprocessors"] == Source(SourceKind.assumed, why.partition(": ")[2])
    assert found.sources["links.count"] == H200.sources["links.count"]
    assert set(found.assumed) == {"limits.multiprocessors", *H200.assumed}
    nvl72 = gpu_type("gb200_nvl72")
    assert (nvl72.switch.gpus, nvl72.limits.multiprocessors) == (72, gpu_type("gb200").limits.multiprocessors)


def test_a_changed_file_is_read_again(tmp_path):
    path = write(tmp_path, "like: h200\ntitle: one\n")
    assert gpu_type(str(path)).title == "one"
    path.write_text("like: h200\ntitle: another\n")
    assert gpu_type(str(path)).title == "another"


def test_sums_in_own_memory_are_not_bounded_by_links(tmp_path):
    path = write(tmp_path, f"{FLOORS}reduce_gbps: {{128: 2000}}}}\n")
    assert gpu_type(str(path)).floors is not None


def test_a_device_has_its_type():
    assert type_of_device("NVIDIA H200") == "h200"
    assert type_of_device("NVIDIA H100 80GB HBM3") == "h100"
    assert type_of_device("NVIDIA T4") == ""
    named = [one for name in gpu_names() for one in gpu_type(name).devices if name != "gb200_nvl72"]
    assert len(named) == len(set(named))


SMS = "like: h200\nlimits: {multiprocessors: "
FLOORS = "like: h200\nfloors: {source: 'measured: 2026-11, x', ranks: 2, "


@pytest.mark.parametrize(
    "text",
    [
        "like: h200\nsize: 3\n",
        "like: h200\nmultiprocessors: 3\n",
        "like: h200\nlimits: {sms: 3}\n",
        f"{SMS}3}}\n",
        f"{SMS}{{value: 3}}}}\n",
        f"{SMS}{{value: 3, source: ''}}}}\n",
        f"{SMS}{{source: 'assumed: x'}}}}\n",
        f"{SMS}{{value: 3, source: 'assumed: x', of: 1}}}}\n",
        f"{SMS}{{value: 3, source: book}}}}\n",
        f"{SMS}{{value: 3, source: 'guess: x'}}}}\n",
        f"{SMS}{{value: 3, source: 'assumed: '}}}}\n",
        f"{SMS}{{value: 3, source: 'measured: on mine'}}}}\n",
        f"{SMS}{{value: 0, source: 'assumed: x'}}}}\n",
        f"{SMS}{{value: many, source: 'assumed: x'}}}}\n",
        "like: h200\nmemory: {gbps: {value: .inf, source: 'assumed: x'}}\n",
        "like: h200\nlimits: {arch: {value: hopper, source: 'assumed: x'}}\n",
        "like: h200\nlimits: 3\n",
        "name: mine\n",
        "like: h200\nfloors: {source: 'assumed: x', ranks: 2}\n",
        "like: h200\nfloors: {source: 'measured: x', ranks: 2}\n",
        "like: h200\nfloors: {ranks: 2}\n",
        f"{FLOORS}relaxed_us: -1}}\n",
        f"{FLOORS}relaxed_us: 0.7, release_acquire_us: {{0: 0.6}}}}\n",
        f"{FLOORS}push_gbps: {{0: 3}}}}\n",
        f"{FLOORS}push_gbps: {{1: 20, 128: 451}}}}\n",
        f"{FLOORS}push_gbps: 3}}\n",
        f"{FLOORS}push_gbps: {{1: 2560}}}}\n",
        f"{FLOORS}pushed: 3}}\n",
        "[1]\n",
        "name: [\n",
    ],
)
def test_what_is_wrong_is_one_line(tmp_path, text):
    write(tmp_path, text)
    with refused(RequestError):
        gpu_type("mine", (CONF, tmp_path))


def test_a_file_that_is_not_there(tmp_path):
    with refused(RequestError):
        gpu_type(str(tmp_path / "none.yaml"))
