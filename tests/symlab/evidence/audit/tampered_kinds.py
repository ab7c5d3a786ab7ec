"""The list of kinds of tampering, see tests/symlab/evidence/audit/tampering.py."""

# ruff: noqa: E501  # a kind reads best in one line

import hashlib
import json
import os
import random
import shutil

from reports.record.seal import MANIFEST
from tests.symlab.evidence.audit.tampering import (
    CLOCK,
    COMMAND_FILES,
    GONE,
    LOAD,
    MACHINE_SAYS,
    OF_WORKERS,
    OTHER_WORK,
    TEXTS,
    TIMED_HOW,
    TREE,
    UUIDS,
    Kind,
    both,
    command,
    copy_world,
    edit,
    every,
    first,
    name_of,
    put,
    record_paths,
    remove,
    replace_in,
    scaled,
    world,
)


def _swap_times(folder):
    """The second world's records get the times of the third, and the other way."""
    for one, other in ((1, 2), (2, 1)):
        for path in world(folder, one).rglob("all_reduce*.json"):
            edit(path, put("started", f"2026-01-01T0{other}:00:00Z"))
            edit(path, put("ended", f"2026-01-01T0{other}:00:01Z"))
    for number in (1, 2):
        (world(folder, number) / "command.json").unlink()


def _in_the_year(folder, year):
    """Everything of all worlds is said to have been in another year."""
    for path in (*folder.rglob("*.json"), *folder.rglob("*.yaml")):
        text = path.read_text(encoding="utf-8")
        path.write_text(text.replace("2026-01-01T", f"{year}-01-01T").replace("20260101T", f"{year}0101T"), "utf-8")
    for number in range(4):
        world(folder, number).rename(folder / name_of(number).replace("2026", year))


def _at_once(folder):
    for path in world(folder, 1).rglob("all_reduce*.json"):
        edit(path, put("started", "2026-01-01T00:00:00.500Z"))
        edit(path, put("ended", "2026-01-01T00:00:01.500Z"))


def _noisy(level, share):
    """Makes samples of a level with other noise, of a share: every derived figure follows by itself."""
    return put("timing.samples_us", lambda rows: [
        [value * (level + share * ((7 * at + 3 * rank) % 5 - 2) / 2) for at, value in enumerate(row)]
        for rank, row in enumerate(rows)
    ])  # fmt: skip


def _renamed(name, of="H200"):
    return lambda document: document.update(json.loads(json.dumps(document).replace(of, name)))


def _shuffled_world(folder):
    source = random.Random(0)

    def changed(document):
        for row in document["timing"]["samples_us"]:
            source.shuffle(row)
            row[:] = [value * source.uniform(0.999, 1.001) for value in row]

    for path in world(folder, 0).glob("all_reduce*.json"):
        there = json.loads(path.read_text(encoding="utf-8"))["timing"]["samples_us"]
        edit(world(folder, 1) / path.name, put("timing.samples_us", there))
        edit(world(folder, 1) / path.name, changed)


def _exchanged(folder):
    for number in range(4):
        ours, theirs = (next(world(folder, number).glob(f"*{name}*.json")) for name in ("one_shot", "nccl"))
        rows = [json.loads(path.read_text(encoding="utf-8"))["timing"]["samples_us"] for path in (ours, theirs)]
        edit(ours, put("timing.samples_us", rows[1]))
        edit(theirs, put("timing.samples_us", rows[0]))


def _of_baseline(folder):
    """Our times are the baseline's, a tenth quicker."""
    theirs = json.loads((next(world(folder, 0).glob("*nccl*.json"))).read_text(encoding="utf-8"))
    ours = next(world(folder, 0).glob("*one_shot*.json"))
    edit(ours, put("timing.samples_us", scaled(0.9)(theirs["timing"]["samples_us"])))


def _reordered(folder):
    rows = json.loads((next(world(folder, 0).glob("*nccl*.json"))).read_text(encoding="utf-8"))["timing"]["samples_us"]
    edit(next(world(folder, 1).glob("*nccl*.json")), put("timing.samples_us", [row[::-1] for row in rows[::-1]]))


def _dropped_world(folder):
    for path in sorted(world(folder, 3).rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    world(folder, 3).rmdir()


def _dropped_case(folder):
    """A record is gone, and command.json does not have it either."""
    path = next(path for path in record_paths(folder) if "two_shot" in path.name)
    case = json.loads(path.read_text(encoding="utf-8"))["id"]
    path.unlink()
    command(lambda document: document["jobs"][0]["cases"].remove(case))(folder)
    command(put("counts.PASSED", lambda count: count - 1))(folder)


def _left_out(folder):
    """A record is gone, and command.json says that the command was interrupted before."""
    _dropped_case(folder)
    path = sorted(folder.rglob("command.json"))[0]
    document = json.loads(path.read_text(encoding="utf-8"))
    case = next(one.stem for one in record_paths(folder) if "one_shot" in one.name).replace("one_shot", "two_shot")
    document["jobs"][0]["cases"].append(case)
    document |= {
        "outcome": "interrupted",
        "exit_code": 130,
        "why": "SIGINT",
        "cases_not_run": [{"job": 0, "case": case}],
    }
    path.write_text(json.dumps(document), encoding="utf-8")
    known = {json.loads(one.read_text(encoding="utf-8"))["kernel"]["ptx_digest"][7:] for one in record_paths(folder)}
    for one in folder.rglob("*.ptx"):
        if one.stem not in known:
            one.unlink()


def _unsealed(change):
    """Change files, and put the manifests back as they were."""

    def changed(folder):
        (folder / "unsealed").touch()
        change(folder)

    return changed


def _other_seed(document):
    document["case"]["seed"] = 1
    document["id"] = document["id"].replace("-s0", "-s1")


def _other_counts(document):
    """In its id as well: the cases that were requested are others."""
    document["case"]["counts"] = "zeros"
    document["id"] += "-counts_zeros"


def _other_digest(document):
    rows = document["check"]["output_digests"]
    document["check"]["output_digests"] = [["0" * 64] * len(row) for row in rows]


def _more_counted(document):
    document["counters"]["accesses"]["own_read"]["count"] += 1


def _kernel_of_a_library(folder):
    ours = json.loads((next(world(folder, 0).glob("*one_shot*.json"))).read_text(encoding="utf-8"))["kernel"]
    every(lambda document: document.update(library="", kernel={**ours, "name": "all_reduce/nccl"}), "nccl")(folder)


def _twice(folder):
    path = record_paths(folder)[0]
    shutil.copy(path, path.with_name(f"zz-{path.name}"))


def _in_shared(folder):
    place = sorted(folder.rglob("command.json"))[0].parent / "shared"
    place.mkdir(exist_ok=True)
    (place / f"{hashlib.sha256(b'{}').hexdigest()}.json").write_text("{}", encoding="utf-8")


def _older(document):
    """As a record of schema 2, which has no digests of data and of code."""
    document["schema"] = 2
    document["check"].update(output_digests=None, input_digests=None)
    document["kernel"].pop("code_digest")
    document["counters"] = {}
    for key in ("findings", "refusal"):
        document.pop(key, None)


def _gpus(document, is_careful=True):
    """GPUs of a machine that had none; is_careful: with a driver, and without the reason why there were none."""
    environment = document["environment"]
    environment["gpus"] = [
        {"bus": f"0000:0{at}:00.0", "model": "NVIDIA H200", "uuid": uuid} for at, uuid in enumerate(UUIDS)
    ]
    if is_careful:
        environment["cuda_driver"] = "13.0"
        environment["not_captured"].pop("gpus", None)


def _more_orders(folder):
    """More seeds wherever a command says how many there were."""
    every(lambda document: None)(folder)
    for path in (*folder.rglob("*.json"), *folder.rglob("*.yaml")):
        text = path.read_text(encoding="utf-8")
        for between in ("=", '": ', ": "):
            text = text.replace(f"stress_seeds{between}2", f"stress_seeds{between}100")
        path.write_text(text, encoding="utf-8")


def _difference(of, mode):
    """The text of a difference, and what git says of a tree with it."""
    text = f"diff --git a/{of} b/{of}\n{mode} 100644\n"
    digest = f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
    kept = {"file": "source.diff", "digest": digest, "bytes": len(text), "left_out_bytes": 0}
    return text, {"dirty": True, "changed_files": 1, "changed": [of], "diff_digest": digest, "kept_diff": kept}


def changed_tree(folder):
    """What the same commands leave where a file differs from its commit: honest, with the difference beside them."""
    text, git = _difference("kernels/all_reduce/README.md", "new file mode")
    for path in folder.rglob("command.json"):
        (path.parent / "source.diff").write_text(text, encoding="utf-8")
    every(put("environment.git", lambda there: {**there, **git}))(folder)
    every(put("environment.sources.kernels", "sha256:" + "5" * 64))(folder)


def _said_unchanged(folder):
    """A changed tree of which the records say that it is the commit's."""
    changed_tree(folder)
    for path in folder.rglob("source.diff"):
        path.unlink()
    every(put("environment.git", lambda there: {
        **{key: value for key, value in there.items() if key != "kept_diff"},
        "dirty": False, "changed_files": 0, "changed": [], "diff_digest": "",
    }))(folder)  # fmt: skip


def _said_unchanged_with_digests(folder):
    there = json.loads(record_paths(folder)[0].read_text(encoding="utf-8"))["environment"]["sources"]["kernels"]
    _said_unchanged(folder)
    every(put("environment.sources.kernels", there))(folder)


def _with_difference(**changes):
    """A changed tree with its difference kept, honest but for the changes."""

    def changed(folder):
        text, git = _difference("kernels/a.py", "index 1234567..89abcde")
        (world(folder, 0) / "source.diff").write_text(text, encoding="utf-8")
        every(put("environment.git", lambda there: {**there, **git, **changes}), name_of(0))(folder)

    return changed


def _other_ptx(old, new):
    """Each PTX file says something else, has the name of what it says, and the records name it."""

    def changed(folder):
        names = {}
        for path in sorted(folder.rglob("*.ptx")):
            text = path.read_text(encoding="utf-8")
            assert old in text
            there = text.replace(old, new).encode()
            names[f"sha256:{path.stem}"] = f"sha256:{hashlib.sha256(there).hexdigest()}"
            path.unlink()
            (path.parent / f"{names[f'sha256:{path.stem}'][7:]}.ptx").write_bytes(there)

        def renamed(document):
            if document["kernel"] is not None:
                document["kernel"]["ptx_digest"] = names[document["kernel"]["ptx_digest"]]

        every(renamed)(folder)

    return changed


def _ended(status, code, **changes):
    """two_shot did not pass: the counts and the exit code of command.json follow, and PTX of no record is removed."""

    def changed(folder):
        every(lambda document: document.update(status=status, check=None, counters={}, **changes), "two_shot")(folder)
        records = [json.loads(path.read_text(encoding="utf-8")) for path in record_paths(folder)]
        here = [one["status"] for one in records if "-all_reduce-" in one["request"]["command"]]
        command(put("counts", {one: here.count(one) for one in sorted(set(here))}))(folder)
        command(put("exit_code", code))(folder)
        known = {one["kernel"]["ptx_digest"][7:] for one in records if one["kernel"] is not None}
        for path in folder.rglob("*.ptx"):
            if path.stem not in known:
                path.unlink()

    return changed


TIMING = (
    Kind("another bus factor", "measured", first(put("timing.bus_factor", 3.0)), "timing"),
    Kind("smaller slots", "measured", first(put("timing.slot_bytes", 1024)), TIMED_HOW),
    Kind("fewer warm-up calls", "measured", first(put("timing.warmup_calls", 20)), TIMED_HOW),
    Kind("calls that were not asked for", "measured", first(put("timing.calls_per_sample", 100)), TIMED_HOW),
    Kind("more slots than calls", "measured", first(put("timing.slots", 40)), TIMED_HOW),
    Kind("one slot, said to rotate", "measured", first(put("timing.slots", 1)), TIMED_HOW),
    Kind("fewer elements checked before", "measured", first(put("timing.checked_before", 1)), TIMED_HOW),
    Kind("fewer elements checked after", "measured", first(put("timing.checked_after", 1)), TIMED_HOW),
    Kind("declared bytes of an op with a size", "measured", first(put("timing.moved_bytes", 4096)), "timing"),
    Kind("eager calls said to be a graph's", "measured", first(put("timing.mode", "eager")), "timing"),
    Kind("another window", "measured", first(put("timing.window", "both_barriers")), "timing"),
    Kind("a hot cache", "measured", first(put("timing.l2", "hot")), "timing"),
    Kind("the slowest samples left out", "measured", first(put("timing.samples_us", lambda rows: [sorted(row)[:-2] for row in rows])), "samples"),
    Kind("rounded samples", "measured", first(put("timing.samples_us", lambda rows: [[round(value, 1) for value in row] for row in rows])), "samples"),
    Kind("samples longer than the case", "measured", first(put("timing.samples_us", scaled(1000.0))), "samples"),
    Kind("one rank's samples for another", "measured", first(put("timing.samples_us", lambda rows: [rows[0], rows[0], *rows[2:]])), "samples"),
    Kind("a rank's samples left out", "measured", first(put("timing.samples_us", lambda rows: rows[:3])), LOAD),
    Kind("sorted samples", "measured", every(put("timing.samples_us", lambda rows: [sorted(row) for row in rows]), "one_shot"), "samples"),
    Kind("samples sorted downwards", "measured", every(put("timing.samples_us", lambda rows: [sorted(row, reverse=True) for row in rows]), "one_shot"), "samples"),
    Kind("half of the samples copied", "measured", first(put("timing.samples_us", lambda rows: [row[:6] * 2 for row in rows])), "samples"),
    Kind("half of the samples copied, in another order", "measured", first(put("timing.samples_us", lambda rows: [row[:6] + row[5::-1] for row in rows])), "samples"),
    Kind("seven samples of a rank copied to another", "measured", first(put("timing.samples_us", lambda rows: [rows[0], rows[1][:3] + rows[0][:7] + rows[1][10:], *rows[2:]])), "samples"),
    Kind("samples cut off at the top", "measured", first(put("timing.samples_us", lambda rows: [[min(value, 10.35) for value in row] for row in rows])), "samples"),
    Kind("a baseline's samples cut off at the bottom", "measured", first(put("timing.samples_us", lambda rows: [[max(value, 20.3) for value in row] for row in rows]), "nccl"), "samples"),
    Kind("a negative time", "measured", first(put("timing.samples_us.0.0", -1.0)), LOAD),
    Kind("quicker than the link", "measured", first(put("timing.samples_us", scaled(1e-5))), "limit"),
    Kind("a limit that the NVLinks don't have", "measured", every(put("timing.limit.push_gbps", 900.0)), "limit"),
    Kind("a limit of another type's links", "measured", every(put("timing.limit", lambda limit: {**limit, "push_gbps": 60.0, "pull_gbps": 60.0})), "limit"),
    Kind("a higher limit in one world", "measured", every(put("timing.limit.push_gbps", 449.0), name_of(2)), "limit"),
    Kind("two limits in one job", "measured", first(put("timing.limit.push_gbps", 401.0)), "limit"),
    Kind("quicker than the link, without a limit", "measured", first(put("timing", lambda timing: timing | {
        "limit": None, "samples_us": scaled(1e-5)(timing["samples_us"])})), "limit"),
    Kind("in turns with what there is no record of", "measured", first(put("timing.interleaved_with", ["nccl", "magic"])), "baselines"),
    Kind("a clock that no GPU has", "measured", first(put("timing.devices.0.before.sm_mhz", 99999)), "clocks"),
    Kind("a clock that H200 has not", "measured", every(put("timing.devices.0.before.sm_mhz", 2400)), "clocks"),
    Kind("a memory clock that H200 has not", "measured", every(put("timing.devices.0.after.memory_mhz", 5000)), "clocks"),
    Kind("a negative power", "measured", first(put("timing.devices.0.before.power_w", -5.0)), MACHINE_SAYS),
    Kind("a temperature that melts", "measured", first(put("timing.devices.0.after.temperature_c", 5000)), MACHINE_SAYS),
    Kind("a baseline that was not in turns", "measured", first(put("timing.interleaved_with", [])), "baselines"),
    Kind("a throttled GPU", "measured", first(put("timing.devices.0.before.throttle", ["thermal"])), "clocks"),
    Kind("others on the GPU", "measured", first(put("timing.devices.0.before.other_processes", 2)), "clocks"),
    Kind("a GPU that the machine does not have", "measured", first(put("timing.devices.0.before.uuid", "GPU-x")), "machine"),
    Kind("another GPU after the samples", "measured", first(put("timing.devices.0.after.uuid", UUIDS[1])), "machine"),
    Kind("two ranks on one GPU", "measured", first(lambda document: [
        document["timing"]["devices"][0][when].update(uuid=UUIDS[1]) for when in ("before", "after")]), "machine"),
    Kind("another L2 cache than the ranks'", "measured", first(put("timing.l2_bytes", 50 << 20)), MACHINE_SAYS),
)  # fmt: skip

WORLDS = (
    Kind("a world twice", "measured", copy_world, "worlds"),
    Kind("a world twice, a little quicker", "measured", lambda folder: copy_world(folder, put("timing.samples_us", scaled(0.98))), "worlds"),
    Kind("a world twice, later by a microsecond", "measured", lambda folder: copy_world(folder, put("timing.samples_us", lambda rows: [[value + 1 for value in row] for row in rows])), "worlds"),
    Kind("a world twice, with noise of a ten-thousandth", "measured", lambda folder: copy_world(folder, _noisy(1, 1e-4)), "worlds"),
    Kind("a world twice, with another first sample", "measured", lambda folder: copy_world(folder, put("timing.samples_us.0.0", lambda value: value * 1.01)), "worlds"),
    Kind("other variables in one world", "measured", every(put("environment.variables.allowed", {"NCCL_ALGO": "Tree"}), name_of(1)), "variables"),
    Kind("another CPU in one world", "measured", every(put("environment.host.cpu_model", "Better CPU"), name_of(1)), "machine"),
    Kind("another system in one world", "measured", every(put("environment.host.kernel", "9"), name_of(1)), "machine"),
    Kind("a rank that takes no time", "measured", first(put("timing.samples_us", lambda rows: [rows[0], *scaled(1e-6)(rows[1:])])), "samples"),
    Kind("a rank that takes a thousand times as long", "measured", first(put("timing.samples_us", lambda rows: [*rows[:3], *scaled(2000.0)(rows[3:])])), "samples"),
    Kind("samples of another world in another order", "measured", _reordered, "worlds"),
    Kind("our samples are the baseline's, quicker", "measured", _of_baseline, "worlds"),
    Kind("a baseline three times as slow in one world", "measured", every(put("timing.samples_us", scaled(3.0)), f"{name_of(2)}/all_reduce-nccl"), "baselines"),
    Kind("baselines three times as slow in two of four worlds", "measured", both(*(
        every(put("timing.samples_us", scaled(3.0)), f"{name_of(at)}/all_reduce-nccl") for at in (1, 2))), "baselines"),
    Kind("our times a third in one world", "measured", every(put("timing.samples_us", scaled(0.33)), f"{name_of(2)}/all_reduce-one"), "baselines"),
    Kind("worlds out of order in time", "measured", _swap_times, "worlds"),
    Kind("worlds at once on the same GPUs", "measured", _at_once, "clocks"),
    Kind("other packages in one world", "measured", every(put("environment.packages.torch", "2.0"), name_of(1)), "software"),
    Kind("another driver in one world", "measured", every(put("environment.gpus.0.driver", "999"), name_of(1)), "software"),
    Kind("other code in one world", "measured", every(put("kernel.ptx_digest", "sha256:" + "1" * 64), f"{name_of(1)}/all_reduce-one"), "kernels"),
    Kind("other bits in one world", "measured", every(_other_digest, f"{name_of(1)}/all_reduce-one"), "data"),
)  # fmt: skip

MACHINE = (
    Kind("a better GPU", "measured", every(put("environment.gpus.0.model", "NVIDIA B200"), name_of(0)), "machine"),
    Kind("a better GPU in the fabric", "measured", first(put("fabric.description", "NVIDIA B200, libnvshmem")), "machine"),
    Kind("better GPUs everywhere but in the code", "measured", every(_renamed("B200")), "machine"),
    Kind("code of another architecture", "measured", first(lambda document: [document[part].update(arch="sm_100a") for part in ("fabric", "kernel")]), "machine"),
    Kind("more multiprocessors", "measured", first(put("environment.world.ranks.0.device.multiprocessors", 160)), MACHINE_SAYS),
    Kind("another capability", "measured", first(put("environment.world.ranks.0.device.capability", "10.0")), MACHINE_SAYS),
    Kind("more links than the model has", "measured", first(put("environment.gpus.0.nvlink.count", 36)), MACHINE_SAYS),
    Kind("quicker links than the model has", "measured", first(put("environment.gpus.0.nvlink.link_mbps", 50000)), MACHINE_SAYS),
    Kind("a library newer than its package", "measured", every(put("library", "NCCL 9.9.9"), "nccl"), MACHINE_SAYS),
    Kind("a fabric newer than its package", "measured", every(put("fabric.description", "NVIDIA H200, libnvshmem 9.9.9")), MACHINE_SAYS),
    Kind("PyTorch that is not its package", "measured", every(put("environment.packages.torch", "9.9")), MACHINE_SAYS),
    Kind("a compiler that is not its package", "run", every(put("kernel.compiler", "nvidia-cutlass-dsl 9.9.9, NVVM 99, ptxas 99")), MACHINE_SAYS),
    *(
        Kind(f"every GPU named {name}", "measured", every(_renamed(name, "NVIDIA H200")), "machine")
        for name in ("NVIDIA B300", "NVIDIA GB300", "NVIDIA RTX PRO 6000 Blackwell Server Edition", "NVIDIA L40S")
    ),
    Kind("H200 named H100, with a memory clock that H100 has not", "measured", every(lambda document: document.update(json.loads(json.dumps(document).replace("H200", "H100").replace('"memory_mhz": 2600', '"memory_mhz": 3201')))), "clocks"),
    Kind("a heap without room", "measured", every(put("fabric.heap_bytes", 1)), MACHINE_SAYS),
    Kind("a simulated fabric of GPUs", "run", every(put("fabric.description", "NVIDIA H200, libnvshmem 3.8.0")), MACHINE_SAYS),
    Kind("a GPU listed twice", "measured", first(put("environment.gpus.1.uuid", UUIDS[0])), "machine"),
    Kind("fewer GPUs than ranks", "measured", first(put("environment.gpus", lambda gpus: gpus[:2])), "machine"),
    Kind("multimem without multicast", "measured", first(put("kernel.multimem", ["multimem.red"])), "kernels"),
    Kind("other processes in the capture", "measured", first(put("environment.gpus.0.other_processes", 1)), "clocks"),
)  # fmt: skip

REQUEST = (
    Kind("why a command stopped that is complete", "measured", command(put("why", "verified by NVIDIA")), COMMAND_FILES),
    Kind("another command line in the records", "measured", first(put("request.command_line", ["python", *["x=1"]])), "command"),
    Kind("another command line in command.json", "measured", command(put("command_line", ["python"])), "command"),
    Kind("an exit code of failure", "measured", command(put("exit_code", 1)), COMMAND_FILES),
    Kind("an exit code that is a text", "measured", command(put("exit_code", "0")), COMMAND_FILES),
    Kind("an exit code of success, and a case that failed", "measured", both(first(lambda document: document.update(
        status="FAILED", check=None, timing=None, reason="a fault")), command(put("counts", {"FAILED": 1, "PASSED": 1}))), COMMAND_FILES),
    Kind("a command that started later", "measured", command(put("started", "2026-01-01T00:00:04+00:00")), "command"),
    Kind("a command that ended before", "measured", command(put("ended", "2025-12-31T00:00:00+00:00")), "command"),
    Kind("a time that can't be read", "measured", command(put("ended", "later")), "command"),
    Kind("other counts in command.json", "measured", command(put("counts", {"PASSED": 1})), COMMAND_FILES),
    Kind("parts of command.json taken away", "measured", command(lambda document: [
        document.pop(key) for key in ("plan", "jobs", "counts")]), "cases"),
    Kind("the end of command.json taken away", "measured", command(lambda document: [
        document.pop(key) for key in ("ended", "outcome")]), "command"),
    Kind("an outcome that no command has", "measured", command(put("outcome", "perfect")), COMMAND_FILES),
    Kind("a command that was stopped, and lacks no case", "measured", command(put("outcome", "stopped")), COMMAND_FILES),
    Kind("more cases requested than there are", "measured", command(put("cases_requested", 99)), COMMAND_FILES),
    Kind("a record twice, under another name", "measured", _twice, "cases"),
    Kind("a record twice, at another time", "measured", both(_twice, lambda folder: edit(
        next(folder.rglob("zz-*")), put("duration_s", 1.01))), "cases"),
    Kind("an experiment that was not asked for", "run", both(
        every(put("request.experiment", "nightly_h200"), "all_reduce-"), command(put("plan.experiment", "nightly_h200"))), "configuration"),
    Kind("an override that the command line has not", "run", first(put("request.overrides", ["+exp=y"])), "configuration"),
    Kind("another override in command.json", "measured", command(put("jobs.0.overrides", ["+exp=y"])), COMMAND_FILES),
    Kind("another plan in command.json", "measured", command(put("plan.configuration.launches", 9)), COMMAND_FILES),
    Kind("another configuration.yaml", "measured", replace_in("configuration.yaml", '"samples": 12', '"samples": 99'), COMMAND_FILES),
    Kind("a configuration.yaml that is not YAML", "measured", replace_in("configuration.yaml", '"samples": 12', '"samples": ['), COMMAND_FILES),
    Kind("a data type that was not resolved", "measured", first(put("request.resolved.dtype", "float32")), COMMAND_FILES),
    Kind("a command that started another day", "measured", command(put("started", "2025-12-31T00:00:00+00:00")), COMMAND_FILES),
    Kind("a record that ended before it started", "measured", first(put("ended", "2025-12-31T00:00:00Z")), "command"),
    Kind("a world of a day to come", "measured", lambda folder: _in_the_year(folder, "2099"), "command"),
    Kind("a record that took another time", "measured", first(put("duration_s", 90.0)), "command"),
    Kind("fewer cases in command.json", "measured", command(put("jobs.0.cases", [])), "cases"),
    Kind("another experiment in command.json", "measured", command(put("plan.experiment", "h200_production")), COMMAND_FILES),
    Kind("another fabric in command.json", "run", command(put("plan.fabric", "nvshmem")), COMMAND_FILES),
    Kind("a record that is gone", "measured", remove("*nccl*.json"), "cases"),
    Kind("a command with more jobs", "measured", every(put("request.jobs", 2)), "cases"),
    Kind("another configuration of one record", "run", first(put("request.configuration.launches", 9)), "configuration"),
    Kind("another configuration everywhere", "run", every(put("request.configuration.deadline_s", 9.0)), "configuration"),
    Kind("a record that is gone, in command.json too", "run", _dropped_case, "cases"),
    Kind("a reason of a record that passed", "measured", first(put("reason", "also verified on 8 x B200")), TEXTS),
    Kind("more random orders than ran", "stressed", _more_orders, "replay", by_rerun=True),
)  # fmt: skip

DATA = (
    Kind("another id", "measured", first(put("id", "all_reduce-two_shot")), LOAD),
    Kind("another algorithm", "measured", first(put("case.algorithm", "two_shot")), LOAD),
    Kind("a kernel of another name", "measured", first(put("kernel.name", "all_reduce/two_shot")), LOAD),
    Kind("a kernel for another architecture", "measured", first(put("kernel.arch", "sm_80")), LOAD),
    Kind("a newer schema", "measured", first(put("schema", 99)), LOAD),
    Kind("wrong elements that passed", "measured", first(put("check.wrong", 3)), LOAD),
    Kind("a failure that passed", "measured", first(put("status", "FAILED")), LOAD),
    Kind("a timing of a simulated run", "measured", first(put("fabric.simulated", True)), LOAD),
    Kind("a timing of unchecked data", "measured", first(put("check", None)), LOAD),
    Kind("digests of another number of launches", "measured", first(put("check.launches", 3)), LOAD),
    Kind("more elements than there are", "measured", first(put("check.elements", 8192)), "data"),
    Kind("fewer launches than were asked for", "run", every(put("request.configuration.launches", 4)), "configuration"),
    Kind("more results than ranks", "measured", first(put("check.results", 9)), "data"),
    Kind("a mean error above the maximum", "run", first(put("check.rms_ulp_error", 0.5)), "data", by_rerun=True),
    Kind("errors where every bit is right", "run", first(put("check.max_ulp_error", 2)), "data", by_rerun=True),
    Kind("digests taken away", "measured", first(put("check.output_digests", [[], [], [], []])), "data"),
    Kind("other bits of one rank", "measured", first(put("check.output_digests.1", ["2" * 64] * 2)), "data"),
    Kind("another input", "run", first(put("check.input_digests.0", "3" * 64)), "data", by_rerun=True),
    Kind("another seed", "run", every(_other_seed), "cases"),
    Kind("other counts per peer", "run", every(_other_counts), "cases"),
    Kind("more instructions", "run", first(put("counters.instructions", 1)), "replay", by_rerun=True),
    Kind("fewer accesses", "run", first(put("counters.accesses.own_write.count", 1)), "replay", by_rerun=True),
    Kind("fewer bytes over links", "run", first(put("counters.links", {"0->1": 1})), "replay", by_rerun=True),
    Kind("counters of other ranks", "run", first(put("counters.of.ranks", 9)), "replay", by_rerun=True),
    Kind("counters of more checked launches", "run", first(put("counters.of.checked", 9)), "replay", by_rerun=True),
    Kind("counters of more launches", "run", first(put("counters.of.launches", 9)), "replay", by_rerun=True),
    Kind("an output that is not the root's input", "run", first(_other_digest, "broadcast"), "data", by_rerun=True),
    Kind("another multimem model", "run", first(put("fabric.settings.multimem", "other")), "kernels", by_rerun=True),
    Kind("another granularity", "run", first(put("fabric.settings.granularity", "access")), "kernels", by_rerun=True),
    Kind("another schedule", "run", first(put("fabric.settings.schedule", "random")), "kernels", by_rerun=True),
    Kind("other outputs, alike on all ranks", "run", first(_other_digest, "all_reduce"), "data", by_rerun=True),
    Kind("a counter", "run", first(_more_counted, "all_reduce"), "replay", by_rerun=True),
    Kind("a refusal that never was", "run", _ended("REFUSED", 0, kernel=None, reason="two_shot does not support 2 ranks"), "data", by_rerun=True),
    Kind("a failure that never was", "run", _ended("FAILED", 1, reason="RuntimeError: illegal address"), "data", by_rerun=True),
    Kind("a deadlock that never was", "run", _ended("DEADLOCK", 1, reason="all ranks wait"), "data", by_rerun=True),
    Kind("other choices of a kernel", "run", every(put("request.kernel.choices.threads", 1024), "one_shot"), "kernels", by_rerun=True),
    Kind("another code digest", "run", every(put("kernel.code_digest", "sha256:" + "4" * 64), "all_reduce"), "kernels"),
)  # fmt: skip

ORIGIN = (
    Kind("a tree that may have been changed or not", "measured", every(put("environment.git.dirty", None)), "commit"),
    Kind("an unchanged commit with changes", "measured", first(put("environment.git.changed_files", 2)), "commit"),
    Kind("a commit that is no commit's name", "measured", first(put("environment.git.commit", "main")), "commit"),
    Kind("another difference", "measured", both(_with_difference(), lambda folder: (world(folder, 0) / "source.diff").write_text("x")), "commit"),
    Kind("a difference that no record names", "measured", lambda folder: (world(folder, 0) / "source.diff").write_text("x"), TEXTS),
    Kind("a shared file that no record refers to", "measured", _in_shared, TEXTS),
    Kind("no digests of sources", "run", every(put("environment.sources", None)), "commit"),
    Kind("no digests of sources, in one world", "measured", first(put("environment.sources", None)), "commit"),
    Kind("an older schema, without what came later", "run", every(_older), "commit"),
    Kind("sources of a kernel, and another one said to be brought", "run", every(lambda document: [
        document["request"].update(brought={"mine": {"place": "mine.py:SPEC", "digest": "sha256:" + "1" * 64}}),
        document["kernel"].update(source_digest="sha256:" + "6" * 64)]), TREE),
    Kind("an invented digest of a kernel's sources", "run", every(put("kernel.source_digest", "sha256:" + "6" * 64)), TREE),
    Kind("another launch than the kernel's", "run", every(lambda document: document["kernel"].update(grid=99, block=1024)), "kernels", by_rerun=True),
    Kind("a library that is another", "measured", every(put("library", "PyTorch 2.9 symmetric memory"), "nccl"), "kernels"),
    Kind("more changed files than are counted", "measured", _with_difference(changed=["a", "b"]), TREE),
    Kind("changes with a digest and no changed file", "measured", _with_difference(changed_files=0), TREE),
    Kind("other PTX", "measured", replace_in("*.ptx", "an invented", "another"), "kernels"),
    Kind("a kernel taken away", "measured", every(put("kernel", None), "one_shot"), "kernels"),
    Kind("a library in the simulator", "run", every(lambda document: document.update(kernel=None, library="NCCL 2.28.9"), "one_shot"), "kernels"),
    Kind("PTX of another kernel, with its name", "measured", _other_ptx(".entry entry_0", ".entry entry_1"), "kernels"),
    Kind("PTX with more multimem", "measured", _other_ptx("//", "// multimem.red.add.f32"), "kernels"),
    Kind("PTX of other code, with its name", "run", _other_ptx("ret;", "nop; ret;"), "kernels"),
    Kind("races that were asked for, and are not there", "run", every(put("request.configuration.check.races", True)), "data"),
    Kind("no counters of a simulated run", "run", every(put("counters", {})), "data"),
    Kind("'check was off' of a checked record", "measured", first(put("reason", "check was off")), "data"),
    Kind("a check that was off after all", "run", first(lambda document: document.update(check=None, reason="check was off")), "data"),
    Kind("no digests of a check", "measured", every(lambda document: document["check"].update(output_digests=None, input_digests=None)), "data"),
    Kind("PTX that is gone", "measured", remove("*.ptx"), "kernels"),
    Kind("other sources than the commit's", "run", every(put("environment.sources.kernels", "sha256:" + "5" * 64)), "commit"),
    Kind("a record older than its commit", "run", every(lambda document: document.update(
        started="2020-01-01T00:00:00.000+00:00", ended="2020-01-01T00:00:00.000+00:00", duration_s=0.0)), "commit"),
    Kind("a library in place of our kernel, on GPUs", "measured", every(lambda document: document.update(
        kernel=None, library="NCCL 2.28.9"), "one_shot"), "kernels"),
    Kind("a library taken away", "measured", every(put("library", ""), "nccl"), "kernels"),
    Kind("a kernel of ours in place of a library", "measured", _kernel_of_a_library, "kernels"),
    Kind("a changed tree said to be unchanged", "run", _said_unchanged, "commit"),
    Kind("another commit in one record", "run", first(put("environment.git.commit", "8" * 40)), "configuration"),
    Kind("another Python in one record", "measured", first(put("environment.python.version", "3.13.1")), "software"),
    Kind("a Python that symlab does not run on", "measured", every(put("environment.python.version", "2.7.1")), MACHINE_SAYS),
    Kind("GPUs where there is no driver", "run", every(lambda document: _gpus(document, is_careful=False)), MACHINE_SAYS),
    Kind("GPUs without their driver's CUDA", "run", every(lambda document: [
        _gpus(document), document["environment"].update(cuda_driver=None)]), MACHINE_SAYS),
    Kind("GPUs of ranks in the simulator", "run", every(lambda document: [_gpus(document), document["environment"].update(
        world={"ranks": [{"rank": 0, "device": {"name": "NVIDIA H200"}}]})]), MACHINE_SAYS),
    Kind("a password", "run", first(put("environment.variables.allowed", {"NCCL_X": "https://a:b@c.de"})), "variables"),
)  # fmt: skip

SEAL = (
    Kind("a record, and no new seal", "measured", _unsealed(first(put("duration_s", 1.001))), "manifest"),
    Kind("a file that is not sealed", "measured", _unsealed(lambda folder: (world(folder, 0) / "more").touch()), "manifest"),
    Kind("a pipe among the files", "measured", _unsealed(lambda folder: os.mkfifo(world(folder, 0) / "pipe")), "manifest"),
    Kind("a link out of the folder", "measured", _unsealed(lambda folder: (world(folder, 0) / "l").symlink_to("/etc")), "manifest"),
    Kind("a manifest line", "measured", _unsealed(replace_in(MANIFEST, "  command.json", "  other.json")), "manifest"),
)  # fmt: skip


UNFINDABLE = (
    Kind("all samples, with noise of their own", "measured", every(_noisy(0.664, 0.004)), CLOCK),
    Kind("a world twice, its samples in another order and with noise", "measured", _shuffled_world, CLOCK),
    Kind("times of two algorithms, exchanged", "measured", _exchanged, CLOCK),
    Kind("a slow world left out", "measured", _dropped_world, GONE),
    Kind("a record that is gone, of a command said to have been interrupted", "run", _left_out, GONE),
    Kind("temperatures and power", "measured", every(put("timing.devices.0.before.temperature_c", 20)), MACHINE_SAYS),
    Kind("another host", "measured", every(put("environment.host.name", "elsewhere")), MACHINE_SAYS),
    Kind("another CPU", "measured", every(put("environment.host.cpu_model", "Better CPU")), MACHINE_SAYS),
    Kind("another version of a library in all worlds", "measured", every(lambda document: [ document["environment"]["packages"].update(torch="9.9"), document["environment"]["torch"].update(version="9.9")]), MACHINE_SAYS),
    Kind("a variable withheld that mattered", "measured", every(put("environment.variables", {"allowed": {}, "withheld": 4})), MACHINE_SAYS),
    Kind("times of a whole command moved by seconds", "measured", both(every(lambda document: document.update(started=document["started"].replace(":00Z", ":01Z"), ended=document["ended"].replace(":01Z", ":02Z")))), CLOCK),
    Kind("a commit that git does not have", "measured", every(put("environment.git.commit", "9" * 40)), TREE),
    Kind("gaps that are not named", "measured", every(put("environment.not_captured", {})), MACHINE_SAYS),
    Kind("a cubin's digest", "measured", every(put("kernel.cubin_digest", "sha256:" + "6" * 64), "one_shot"), MACHINE_SAYS),
    Kind("a case of GPUs that passed, said to have failed", "measured", both(first(lambda document: document.update(status="FAILED", check=None, timing=None, reason="RuntimeError: illegal address")), command(lambda document: document.update(counts={"PASSED": 1, "FAILED": 1}, exit_code=1))), OTHER_WORK),
    Kind("another Python version that symlab runs on", "measured", every(put("environment.python.version", "3.11.1")), MACHINE_SAYS),
    Kind("GPUs of a machine that simulated", "run", every(_gpus), MACHINE_SAYS),
    Kind("a changed tree said to be unchanged, with its commit's digests", "run", _said_unchanged_with_digests, TREE),
    Kind("what is said of workers", "measured", both(
        every(put("environment.launch.worker", {"number": 7, "launcher": "joblib"})), command(put("workers", [{"number": 7, "launcher": "joblib"}]))), OF_WORKERS),
)  # fmt: skip

KINDS = (*TIMING, *WORLDS, *MACHINE, *REQUEST, *DATA, *ORIGIN, *SEAL, *UNFINDABLE)
"""All kinds."""
