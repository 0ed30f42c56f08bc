"""A real SLURM of one node, as root, in a folder of its own; the machine's own is not touched.

The two GPUs are a mock: two names of /dev/null that SLURM hands out as `gpu:mock`. Jobs get CUDA_VISIBLE_DEVICES and
train on the CPU. The node claims more processors and memory than it may have: only GPUs limit how many jobs run. A job
of the partition `urgent` preempts those of `main`, which are requeued.

    python tests/cluster/one_node.py FOLDER     starts one, prints what a shell needs to use it, stays until Ctrl-C
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

PROGRAMS = ("munged", "munge", "slurmctld", "slurmd", "sbatch", "srun", "squeue", "scontrol", "scancel", "sinfo")
PACKAGES = "slurmctld slurmd slurm-client munge"
NODE = "node0"
STARTS = 300.0  # seconds within which a node must be idle
UNASKED = range(20_000, 32_000)  # below the ports of who asks for any (net.ipv4.ip_local_port_range)
CONFIG = """\
ClusterName=capsbench
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmdPort={node_port}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
MailProg=/bin/true
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=2,bf_interval=2
ReturnToService=0
KillWait={kill_wait}
MessageTimeout=60
BatchStartTimeout=120
MinJobAge=3600
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
GresTypes=gpu
NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 CPUs=8 RealMemory=64000 Gres=gpu:mock:2 State=UNKNOWN
PartitionName=main Nodes={node} Default=YES MaxTime=INFINITE State=UP
PartitionName=urgent Nodes={node} PriorityTier=10 PreemptMode=OFF MaxTime=INFINITE State=UP
"""


def missing_programs() -> list[str]:
    """The programs of SLURM and munge that this machine has not."""
    return [name for name in PROGRAMS if shutil.which(name, path=search_path()) is None]


def search_path() -> str:
    """PATH with the folders where Debian puts daemons."""
    return os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])


@dataclass
class OneNode:
    """The cluster: a folder that holds all it writes, and the environment that its commands need.

    Args:
        folder: empty or not there, its path short (a socket's has at most 107 characters).
        kill_wait: seconds between SLURM's SIGTERM and its SIGKILL.
    """

    folder: Path
    kill_wait: int = 30
    daemons: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs to talk to this cluster.

        Snakemake's job step hands no SLURM_CONF on to srun, so a wrapper of srun stands first in PATH and says it.
        """
        return {
            "SLURM_CONF": str(self.folder / "slurm.conf"),
            "PATH": os.pathsep.join([str(self.folder / "bin"), search_path()]),
        }

    def start(self) -> None:
        """Start the daemons and wait until the node is idle. Raises RuntimeError with the logs if it never is."""
        for name in ("state", "spool", "bin"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o755)
        (self.folder / "munge.key").write_bytes(os.urandom(128))
        (self.folder / "munge.key").chmod(0o400)
        for number in range(2):
            (self.folder / f"mock-gpu{number}").symlink_to("/dev/null")  # SLURM wants a device
        gpus = "AutoDetect=off\n" + "".join(
            f"NodeName={NODE} Name=gpu Type=mock Flags=nvidia_gpu_env File={self.folder}/mock-gpu{number}\n"
            for number in range(2)
        )
        (self.folder / "gres.conf").write_text(gpus)
        controller_port, node_port = _free_ports(2)
        values = {
            "host": socket.gethostname().split(".")[0],
            "controller_port": controller_port,
            "node_port": node_port,
            "folder": self.folder,
            "node": NODE,
            "kill_wait": self.kill_wait,
        }
        (self.folder / "slurm.conf").write_text(CONFIG.format(**values))
        wrapper = self.folder / "bin" / "srun"
        srun = shutil.which("srun", path=search_path())
        wrapper.write_text(f'#!/bin/sh\nSLURM_CONF={self.folder}/slurm.conf exec {srun} "$@"\n')
        wrapper.chmod(0o755)
        self._daemon(
            "munged",
            "--foreground",
            "--force",
            f"--socket={self.folder}/munge.socket",
            f"--key-file={self.folder}/munge.key",
            f"--pid-file={self.folder}/munged.pid",
            f"--log-file={self.folder}/munged.log",
            f"--seed-file={self.folder}/munged.seed",
        )
        self._wait(lambda: (self.folder / "munge.socket").exists(), "munge")
        self._daemon("slurmctld", "-D", "-c")
        self.start_node()

    def start_node(self) -> None:
        """Start the node's own daemon (again) and wait until it takes jobs."""
        self._daemon("slurmd", "-D", "-N", NODE)
        self._wait(lambda: self.ask("sinfo", "-h", "-o", "%T", check=False) in ("idle", "mixed"), "node")

    def stop(self) -> None:
        """End every daemon, the youngest first, and whatever else was started with this cluster's environment."""
        for daemon in reversed(self.daemons):
            daemon.terminate()
            try:
                daemon.wait(timeout=20)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        self.daemons.clear()
        ours = f"SLURM_CONF={self.folder}/slurm.conf".encode()
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # it ended meanwhile
                if ours in (process / "environ").read_bytes().split(b"\0"):
                    os.kill(int(process.name), signal.SIGKILL)

    def ask(self, *command: str, check: bool = True) -> str:
        """What a command of SLURM answers. Raises CalledProcessError where it fails and `check` is set."""
        said = subprocess.run(
            command, env=os.environ | self.environment, capture_output=True, text=True, timeout=300, check=False
        )
        if check and said.returncode:
            raise RuntimeError(f"{' '.join(command)}: {said.stdout}{said.stderr}")
        return said.stdout.strip()

    def jobs(self) -> dict[str, dict[str, str]]:
        """The jobs that SLURM remembers, by their ids, with `scontrol show job`'s keys."""
        answer = self.ask("scontrol", "show", "job", "--details", "--oneliner")
        rows = [dict(word.split("=", 1) for word in line.split() if "=" in word) for line in answer.splitlines()]
        return {row["JobId"]: row for row in rows if "JobId" in row}

    def steps(self) -> list[str]:
        """The job steps that still have processes: `<node>_<job>.<step>`. After a node's loss they end last."""
        return sorted(path.name for path in (self.folder / "spool").glob(f"{NODE}_*"))

    def logs(self) -> str:
        """The ends of the daemons' logs."""
        parts = []
        for path in sorted(self.folder.glob("*.log")):
            parts += [f"-- {path.name}", *path.read_text(errors="replace").splitlines()[-20:]]
        return "\n".join(parts)

    def _daemon(self, *command: str) -> None:
        program = shutil.which(command[0], path=search_path())
        assert program is not None, f"{command[0]} is not there; apt-get install {PACKAGES}"
        log = (self.folder / f"{command[0]}.out.log").open("ab")
        with log:
            self.daemons.append(
                subprocess.Popen(
                    [program, *command[1:]],
                    env=os.environ | self.environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            )

    def _wait(self, there: object, what: str) -> None:
        assert callable(there)
        end = time.monotonic() + STARTS
        while not there():
            dead = [daemon.args for daemon in self.daemons if daemon.poll() is not None]
            if dead or time.monotonic() > end:
                raise RuntimeError(f"SLURM's {what} did not start ({dead or 'too slow'}):\n{self.logs()}")
            time.sleep(0.2)


def _free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now, and that the system gives to nobody unasked before the daemons listen there."""
    return list(itertools.islice(filter(_is_free, random.sample(UNASKED, len(UNASKED))), count))


def _is_free(port: int) -> bool:
    with contextlib.closing(socket.socket()) as one:
        return one.connect_ex(("127.0.0.1", port)) != 0


def main(arguments: Sequence[str]) -> None:
    """Start a cluster for trying things by hand."""
    cluster = OneNode(Path(arguments[0]).resolve())
    for number in (signal.SIGINT, signal.SIGTERM):  # a shell without job control leaves SIGINT ignored
        signal.signal(number, signal.default_int_handler)
    try:
        cluster.start()
        for name, value in cluster.environment.items():
            print(f"export {name}={value}", flush=True)
        while True:
            time.sleep(60)
    except KeyboardInterrupt:
        pass
    finally:
        cluster.stop()


if __name__ == "__main__":
    main(sys.argv[1:])
