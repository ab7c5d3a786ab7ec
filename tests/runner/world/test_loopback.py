"""The environment that keeps libraries of a world of one machine on its loopback interface."""

import socket

from runner.world.loopback import LOOPBACK, keep_on_loopback


def test_the_interface_is_one_of_this_machine():
    assert LOOPBACK in {name for _, name in socket.if_nameindex()}


def test_all_three_libraries_are_told_whatever_the_environment_said():
    addresses = dict.fromkeys(("NCCL_COMM_ID", "NVSHMEM_BOOTSTRAP_UID_SESSION_ID"), "10.0.0.1:1")
    environment = {"NCCL_SOCKET_IFNAME": "eth0", "GLOO_SOCKET_IFNAME": "eth0", "HOME": "/", **addresses}
    keep_on_loopback(environment)
    told = {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "=lo", "NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME": "lo"}
    assert environment == {**told, "HOME": "/"}
