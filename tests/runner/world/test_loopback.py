"""The environment that keeps libraries of a world of one machine on its loopback interface."""

import socket

from runner.world.loopback import keep_on_loopback, loopback_interface


def test_the_interface_is_one_of_this_machine():
    assert loopback_interface() in {name for _, name in socket.if_nameindex()}


def test_the_interface_is_known_by_its_kind(tmp_path):
    for name, kind in (("eth0", "1"), ("loop7", "772"), ("odd", "\u00fc")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "type").write_text(f"{kind}\n")
    assert loopback_interface(tmp_path) == "loop7"
    assert loopback_interface(tmp_path / "eth0") == "lo", "where the kernel does not say"


def test_all_three_libraries_are_told_whatever_the_environment_said():
    environment = {
        "NCCL_SOCKET_IFNAME": "eth0",
        "GLOO_SOCKET_IFNAME": "eth0",
        "NCCL_COMM_ID": "10.0.0.1:1",
        "NVSHMEM_BOOTSTRAP_UID_SESSION_ID": "10.0.0.1:1",
        "HOME": "/",
    }
    keep_on_loopback(environment, "lo")
    assert environment == {
        "GLOO_SOCKET_IFNAME": "lo",
        "NCCL_SOCKET_IFNAME": "=lo",
        "NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME": "lo",
        "HOME": "/",
    }
