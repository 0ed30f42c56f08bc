"""What a manifest says of the machine: a processor's generation as well as its name, and the cores that were to use."""

import os
import platform

from tools import unavailable

from capsbench.provenance import ALTERING, cores, machine, processor


def cpuinfo(folder, *lines):
    path = folder / "cpuinfo"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_two_generations_of_one_name_differ(tmp_path):
    zen3 = ["processor\t: 0", "cpu family\t: 25", "model\t\t: 1", "model name\t: AMD EPYC", "bogomips\t: 4890.81"]
    zen5 = ["processor\t: 0", "cpu family\t: 26", "model\t\t: 2", "model name\t: AMD EPYC", "bogomips\t: 5399.99"]
    assert processor(cpuinfo(tmp_path, *zen3, "", *zen3)) == "AMD EPYC (family 25, model 1)"
    assert processor(cpuinfo(tmp_path, *zen5, "", *zen5)) == "AMD EPYC (family 26, model 2)"


def test_without_a_family_it_is_the_name_and_without_a_file_what_python_knows(tmp_path):
    assert processor(cpuinfo(tmp_path, "processor\t: 0", "model name\t: ARMv8 Processor")) == "ARMv8 Processor"
    python_knows = platform.processor() or platform.machine()
    assert processor(cpuinfo(tmp_path, "processor\t: 0", "CPU part\t: 0xd0c")) == python_knows  # as ARM's often are
    assert processor(tmp_path / "none") == python_knows


def test_the_cores_are_those_that_this_process_may_use():
    """As a batch system gives it two of a node's hundred."""
    if not hasattr(os, "sched_setaffinity"):
        unavailable("only Linux limits a process to some cores")
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        assert cores() == 1
    finally:
        os.sched_setaffinity(0, before)


def test_variables_are_named_that_let_the_same_threads_compute_other_bits(monkeypatch):
    for name in ALTERING:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "7")  # which --threads replaces
    assert "environment" not in machine()
    monkeypatch.setenv("OMP_DYNAMIC", "true")
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", "avx2")
    assert machine()["environment"] == "ATEN_CPU_CAPABILITY=avx2 OMP_DYNAMIC=true"
