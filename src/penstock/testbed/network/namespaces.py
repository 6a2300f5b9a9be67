"""Network namespaces: running things in them. The only place here that starts `ip`, `tc` & Co."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from penstock.domain.errors import MissingPart, TestbedError
from penstock.testbed.lease import NETNS_DIR

_CLONE_NEWNET = 0x40000000
_PACKAGES = {
    "ip": "iproute2",
    "tc": "iproute2",
    "nsenter": "util-linux",
    "iptables-legacy": "iptables",
    "iptables-legacy-restore": "iptables",
}


@cache
def tool(name: str) -> str:
    """The path of a system tool. Those of root are often not on a user's PATH."""
    path = shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin")
    if path is None:
        package = _PACKAGES.get(name, name)
        raise MissingPart(f"`{name}` is not installed", f"install it: apt install {package}")
    return path


def require_root() -> None:
    if os.geteuid() != 0:
        raise MissingPart(
            "the testbed's network needs root: it makes network namespaces",
            "run it with sudo, or use a testbed without a network section",
        )


def command(namespace: str, argv: Sequence[str]) -> list[str]:
    """`argv` inside the namespace; the process started is `argv` itself, with the same pid.

    nsenter and not `ip netns exec`, which also remounts /sys and so hides the cgroup from a JVM
    that wants to know its limits.
    """
    return [tool("nsenter"), f"--net={NETNS_DIR / namespace}", "--", *argv]


def run(argv: Sequence[str], *, text: str = "") -> str:
    """Run a tool with `text` as its input; its output."""
    return _result(argv, _start(argv), text)


def run_all(commands: Iterable[tuple[Sequence[str], str]]) -> None:
    """Run (argv, input) side by side: most of what such a tool takes is its own start."""
    started = [(argv, _start(argv), text) for argv, text in commands]
    for argv, process, text in started:
        _result(argv, process, text)


def ip_batch(lines: str, namespace: str | None = None) -> tuple[list[str], str]:
    """An argv and its input, for `run_all`."""
    inside = [] if namespace is None else ["-n", namespace]
    return [tool("ip"), *inside, "-batch", "-"], lines


def tc_batch(lines: Iterable[str], namespace: str) -> tuple[list[str], str]:
    return [tool("tc"), "-n", namespace, "-batch", "-"], "".join(f"{line}\n" for line in lines)


@contextmanager
def inside(namespace: str) -> Iterator[None]:
    """Move the calling thread into the namespace and back.

    Sockets and threads made meanwhile stay there. Other threads do not move.
    """
    with _open_namespace(Path("/proc/thread-self/ns/net")) as home:
        with _open_namespace(NETNS_DIR / namespace) as target:
            _setns(target)
        try:
            yield
        finally:
            _setns(home)


@contextmanager
def _open_namespace(path: Path) -> Iterator[int]:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise TestbedError(
            f"the network namespace {path.name} is gone", "start the testbed again"
        ) from None
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _setns(descriptor: int) -> None:
    # os.setns exists from Python 3.12 on.
    if _libc().setns(descriptor, _CLONE_NEWNET) != 0:
        error = ctypes.get_errno()
        raise TestbedError(
            f"cannot enter a network namespace: {os.strerror(error)}", "run it with sudo"
        )


def _start(argv: Sequence[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def _result(argv: Sequence[str], process: subprocess.Popen[str], text: str) -> str:
    output, error = process.communicate(text)
    if process.returncode != 0:
        raise TestbedError(
            f"`{' '.join(argv)}` failed: {error.strip() or output.strip()}"
            + (f"\nits input was:\n{text}" if text else "")
        )
    return output
