#!/usr/bin/env python3
"""Runs a command beside a Slurm of one node that lives in a directory of its own, and ends what it started.

Usage: with_slurm.py DIR COMMAND... Needs root and Debian's slurmctld, slurmd, slurm-client and munge. Exit status: the
command's; 77 if Slurm cannot be had here.
"""
import os
import socket
import subprocess
import sys
import time

CONF = """ClusterName=ptescope
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ctld}
SlurmdPort={slurmd}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={dir}/munge.socket
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
StateSaveLocation={dir}/state
SlurmdSpoolDir={dir}/spool
SlurmctldPidFile={dir}/slurmctld.pid
SlurmdPidFile={dir}/slurmd.pid
SlurmctldLogFile={dir}/slurmctld.log
SlurmdLogFile={dir}/slurmd.log
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
ReturnToService=2
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} State=UNKNOWN
PartitionName=main Nodes={host} Default=YES MaxTime=INFINITE State=UP OverSubscribe=YES
"""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start(log, *command):
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)


def wait_for(what, ready, seconds=30):
    for _ in range(seconds * 5):
        if ready():
            return
        time.sleep(0.2)
    raise RuntimeError(f"{what} does not come up")


def idle(env):
    seen = subprocess.run(["sinfo", "-h", "-o", "%T"], env=env, capture_output=True, text=True)
    return "idle" in seen.stdout


def main():
    where, command = os.path.abspath(sys.argv[1]), sys.argv[2:]
    for name in ["state", "spool"]:
        os.makedirs(f"{where}/{name}", exist_ok=True)
    os.chmod(where, 0o755)
    host = socket.gethostname().split(".")[0]
    key = f"{where}/munge.key"
    with open(key, "wb") as file:
        file.write(os.urandom(128))
    os.chmod(key, 0o400)
    with open(f"{where}/slurm.conf", "w") as file:
        file.write(CONF.format(host=host, dir=where, ctld=free_port(), slurmd=free_port(), cpus=os.cpu_count()))
    env = dict(os.environ, SLURM_CONF=f"{where}/slurm.conf")
    os.environ.update(env)
    log = open(f"{where}/daemons.log", "w")
    daemons = []
    try:
        daemons.append(start(log, "munged", "--foreground", "--force", f"--key-file={key}", f"--socket={where}/munge.socket",
                             f"--pid-file={where}/munge.pid", f"--log-file={where}/munge.log", f"--seed-file={where}/munge.seed"))
        wait_for("munge", lambda: os.path.exists(f"{where}/munge.socket"))
        daemons.append(start(log, "slurmctld", "-D", "-c"))
        daemons.append(start(log, "slurmd", "-D", "-N", host))
        wait_for("the node", lambda: idle(env))
    except (OSError, RuntimeError) as error:
        print(f"SKIPPED: no Slurm here: {error}; see {where}")
        end(daemons)
        sys.exit(77)
    try:
        status = subprocess.run(command, env=env).returncode
    finally:
        end(daemons)
    sys.exit(status)


def end(daemons):
    """Ends the daemons that were started here, and no others."""
    for daemon in reversed(daemons):
        daemon.terminate()
    for daemon in reversed(daemons):
        try:
            daemon.wait(timeout=20)
        except subprocess.TimeoutExpired:
            daemon.kill()


main()
