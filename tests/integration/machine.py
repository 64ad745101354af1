# SPDX-License-Identifier: Apache-2.0
"""A machine with systemd as its first process, within this one.

::

    machine = Machine()
    machine.boot()
    machine.run("systemctl", "enable", "--now", "amqproute")
    machine.close()

It sees this machine's files, and what it writes goes to memory: an overlay. The rest is its own:
processes, network (loopback only), host name, a part of the cgroup tree, ``/dev``, ``/run``,
``/tmp`` and ``/etc/systemd``. The program is where the README says, in ``/opt/amqproute``, with
interpreter, libraries and sources of this very test. Nothing of it is left when it is closed, or
when the test dies.

Needs root, systemd, ``unshare`` and ``nsenter``, cgroup2 and a kernel with overlayfs
(`why_no_machine`). It gives the services no memory or CPU accounting where the kernel has those in
the old hierarchies; all else of a unit is in force.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import subprocess
import sys
from pathlib import Path

import twisted

import amqproute
from tests.integration.support import die_with_parent, new_directory, until
from tests.support.patience import PATIENCE

__all__ = ["SOURCES", "SYSTEMD", "CannotBoot", "Machine", "why_no_machine"]

SYSTEMD = Path("/lib/systemd/systemd")
SOURCES = Path(amqproute.__file__).parents[1]

_PREPARE = r"""
set -eu
mount -t tmpfs -o mode=755 tmpfs "$FILES"
cd "$FILES"
mkdir upper work root
mount -t overlay -o lowerdir=/,upperdir=upper,workdir=work overlay root
cd root
mount -t proc proc proc
mount --bind proc/sys proc/sys
mount -o remount,bind,ro proc/sys
mount -t sysfs -o ro,nosuid,nodev,noexec sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
attach() { mkdir -p "$2"; mount --bind "$1" "$2"; mount -o remount,bind,ro "$2"; }
attach "$PYTHON" opt/amqproute/python
attach "$PACKAGES" opt/amqproute/packages
attach "$SOURCES" opt/amqproute/sources
mkdir opt/amqproute/bin
cat > opt/amqproute/bin/amqproute <<END
#!/bin/sh
at=/opt/amqproute
export PYTHONPATH=\$at/sources:\$at/sources/plugins:\$at/packages PYTHONDONTWRITEBYTECODE=1
export LD_LIBRARY_PATH=\$at/python/lib
exec \$at/python/bin/$NAME -P -m amqproute "\$@"
END
chmod 755 opt/amqproute/bin/amqproute
mount -t tmpfs -o mode=755 tmpfs dev
for device in null:3 zero:5 full:7 random:8 urandom:9; do
  mknod -m 666 "dev/${device%:*}" c 1 "${device#*:}"
done
mknod -m 666 dev/tty c 5 0
mkdir dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts dev/pts
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
for place in dev/shm tmp var/tmp; do mount -t tmpfs -o mode=1777 tmpfs "$place"; done
# What this machine runs, mounts and has logged is no business of the one within.
for place in run etc/systemd/system var/log var/lib/systemd; do
  mount -t tmpfs -o mode=755 tmpfs "$place"
done
: > etc/fstab
echo broker.alpha.example > etc/hostname
mkdir -p .outside
pivot_root . .outside
umount -l .outside
mount --make-rshared /
exec env -i container=amqproute PATH=/usr/sbin:/usr/bin:/sbin:/bin TERM=dumb \
  setpriv --bounding-set=-sys_module,-sys_time,-sys_rawio \
  "$SYSTEMD" --system --log-target=journal --show-status=0 --unit=multi-user.target
"""


@functools.cache
def cgroup_root() -> Path | None:
    """Return where the tree of cgroup2 is mounted, or None."""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields = line.split()
        if fields[fields.index("-") + 1] == "cgroup2":
            return Path(fields[4])
    return None


def own_cgroup() -> Path:
    """Return this process's own part of the tree of cgroup2."""
    root = cgroup_root()
    assert root is not None
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    (path,) = [line.removeprefix("0::") for line in lines if line.startswith("0::")]
    return root / path.lstrip("/")


def remove(cgroup: Path) -> bool:
    """Remove a part of the tree, from its leaves; False while a process in it is still ending."""
    for path, _, _ in os.walk(cgroup, topdown=False):
        with contextlib.suppress(OSError):
            os.rmdir(path)
    return not cgroup.exists()


def why_no_machine() -> str:
    """Say why no machine can be had here; nothing if it can be tried."""
    if os.geteuid() != 0:
        return "not root"
    if not SYSTEMD.exists():
        return f"no {SYSTEMD} (Debian: apt-get install systemd)"
    for tool in ("unshare", "nsenter", "setpriv"):
        if shutil.which(tool) is None:
            return f"no {tool} command (util-linux)"
    if cgroup_root() is None:
        return "no cgroup2"
    if SOURCES.stat().st_mode & 0o5 != 0o5:
        return f"{SOURCES} is closed to other users"
    probe = own_cgroup() / f"amqproute-{os.getpid()}-probe"
    try:
        probe.mkdir()
        probe.rmdir()
    except OSError as error:
        return f"no cgroup can be made: {error.strerror}"
    return ""


class CannotBoot(Exception):
    """This kernel, or whoever confines us, has not got what it takes; in its words."""


class Machine:
    """systemd as the first process of namespaces of its own.

    Attributes:
        log_path: what was said before there was a journal.
    """

    def __init__(self) -> None:
        self.directory = new_directory("machine")
        self.log_path = self.directory / "boot.log"
        self._cgroup = own_cgroup() / f"amqproute-{os.getpid()}-{self.directory.name}"
        self._process: subprocess.Popen[bytes] | None = None
        self._first = 0

    def boot(self) -> None:
        """Start it, and wait until it takes commands.

        Raises:
            CannotBoot: namespaces, or what has to be mounted in them, are not to be had.
            AssertionError: it did not come up.
        """
        for left in own_cgroup().glob("amqproute-*-machine-*"):
            if not Path("/proc", left.name.split("-")[1]).exists():
                remove(left)  # of a test that was killed
        self._cgroup.mkdir()
        files = self.directory / "files"
        files.mkdir()
        python = f"python{sys.version_info.major}.{sys.version_info.minor}"
        places = {
            "FILES": files, "PYTHON": sys.base_prefix, "NAME": python, "SYSTEMD": SYSTEMD,
            "PACKAGES": Path(twisted.__file__).parents[1], "SOURCES": SOURCES,
        }  # fmt: skip
        own = "--pid --mount --uts --ipc --net --cgroup --fork --kill-child --propagation private"
        # The cgroup has to be entered before the namespace is made: it is its root.
        enter = f'echo 0 > "{self._cgroup}/cgroup.procs" && exec unshare {own} /bin/bash -c "$1"'
        with self.log_path.open("wb") as log:
            self._process = subprocess.Popen(
                ["/bin/bash", "-c", enter, "bash", _PREPARE],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env={**os.environ, **{name: str(value) for name, value in places.items()}},
                preexec_fn=die_with_parent,
            )  # fmt: skip
        self._first = until(self._find_first, "the first process", PATIENCE, self._said)
        until(self._is_up, "a machine that is up", PATIENCE, self._said)

    def _said(self) -> str:
        return self.log_path.read_text(errors="replace")[-5000:]

    def _find_first(self) -> int:
        """Return the process id, outside, of the first process, when it is systemd by now."""
        assert self._process is not None
        if self._process.poll() is not None:
            raise CannotBoot(self._said().strip().rpartition("\n")[2])
        pid = self._process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        if not children:
            return 0
        with contextlib.suppress(OSError):
            if Path(f"/proc/{children[0]}/comm").read_text() == "systemd\n":
                return int(children[0])
        return 0

    def _is_up(self) -> bool:
        state = self.ask("systemctl", "is-system-running").stdout.strip()
        return state in ("running", "degraded")

    def close(self) -> None:
        """Switch it off."""
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()  # and with it all within: --kill-child
        process.wait(PATIENCE)
        until(lambda: remove(self._cgroup), "the end of all within", PATIENCE)

    # -- commands ----------------------------------------------------------------------------------

    def within(self, *command: str) -> list[str]:
        """Return a command that runs another one within."""
        return ["nsenter", f"--target={self._first}", "--mount", "--uts", "--ipc", "--net",
                "--pid", "--cgroup", "--root", "env", "-i", "-C", "/", "LC_ALL=C.UTF-8",
                "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                "HOME=/root", "SYSTEMD_PAGER=cat", "SYSTEMD_COLORS=0", *command]  # fmt: skip

    def ask(self, *command: str, seconds: float = PATIENCE) -> subprocess.CompletedProcess[str]:
        """Run a command within, whatever comes of it."""
        return subprocess.run(
            self.within(*command), stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=seconds,
        )  # fmt: skip

    def run(self, *command: str, seconds: float = PATIENCE) -> str:
        """Run a command within; return what it prints.

        Raises:
            AssertionError: it fails; with its words, and the last ones of the journal.
        """
        done = self.ask(*command, seconds=seconds)
        if done.returncode:
            journal = self.ask("journalctl", "--no-pager", "-n", "60").stdout
            raise AssertionError(
                f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout}{done.stderr}\n"
                f"{journal}"
            )
        return done.stdout

    def write(self, path: str, text: str) -> None:
        """Write a file within."""
        subprocess.run(
            self.within("tee", path), input=text.encode(), stdout=subprocess.DEVNULL, check=True,
            timeout=PATIENCE,
        )  # fmt: skip

    def property(self, unit: str, name: str) -> str:
        """Return a property of a unit."""
        return self.run("systemctl", "show", "--value", f"--property={name}", unit).strip()

    def journal(self, unit: str, *more: str) -> str:
        """Return the messages of a unit in the journal."""
        return self.run("journalctl", "--no-pager", "-o", "cat", "-u", unit, *more)
