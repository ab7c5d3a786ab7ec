"""Kernels that do one thing, by which `symlab calibrate` measures what a type of GPU takes for it: its floors.

They do no op: each is a @cute.jit object that `op: custom` runs, with buffers, arguments and a reference of its own
(symlab/speed/calibrate/probes.py), so it is checked, timed, recorded and replayed as any kernel that a user brings.
"""
