"""Becomes another program: gives up root, asks to be interrupted when the parent dies, then exec.

A script of its own, run by the supervisor as ``python -I -S launch.py PARENT UID GID PROGRAM ARGUMENT…`` (UID and GID
"-" keep the user), because the order matters: the kernel forgets the parent-death signal when the user changes, keeps
it across exec, and ``preexec_fn`` is not safe beside other threads. The process keeps its pid, so PostgreSQL is the
supervisor's own child. SIGINT is PostgreSQL's fast shutdown: a broker that is killed with -9 leaves a clean directory.

The signal is sent when the *thread* that started the process ends: start it from one that lives as long as the server.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main(parent: str, uid: str, gid: str, program: str, *arguments: str) -> None:
    """Never returns: the process image is replaced, or the process ends with 1 when the parent is gone already."""
    if uid != "-":
        os.setgroups([])
        os.setgid(int(gid))
        os.setuid(int(uid))
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGINT)
        if os.getppid() != int(parent):
            sys.exit(1)
    os.umask(0o077)
    os.chdir("/")
    os.execv(program, [program, *arguments])


if __name__ == "__main__":
    main(*sys.argv[1:])
