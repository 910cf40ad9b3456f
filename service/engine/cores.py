"""The cores that this process may use."""

import math
import os
from pathlib import Path

_OWN_GROUP = Path("/proc/self/cgroup")
_GROUPS = Path("/sys/fs/cgroup")


def available_cores() -> int:
    """Cores that this process may use: ``OMP_NUM_THREADS`` if set, else those of its affinity and,
    rounded down, of its CPU quota."""
    wanted = os.environ.get("OMP_NUM_THREADS", "").split(",")[0]
    if wanted.isdecimal() and int(wanted) > 0:
        return int(wanted)
    if hasattr(os, "sched_getaffinity"):
        return max(1, int(min(len(os.sched_getaffinity(0)), _quota())))
    return os.cpu_count() or 1


def _quota() -> float:
    """Cores that the control group allows (version 2), as set for a container."""
    try:
        group = _OWN_GROUP.read_text().rpartition("::")[2].strip()
        limit, period = Path(f"{_GROUPS}{group}", "cpu.max").read_text().split()
        return int(limit) / int(period)
    except (OSError, ValueError):  # no group, or the limit "max"
        return math.inf
