"""What this machine offers for training, and what is wrong with it."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch

from .flops import matmul_peak

PACKAGES: Final = ("holoshard", "torch", "numpy", "h5py", "numcodecs", "safetensors", "tensorboard")
SETTINGS: Final = ("NCCL_", "TORCH_", "PYTORCH_", "CUDA_", "GLOO_", "OMP_", "MKL_", "MALLOC_",
                   "SLURM_JOB")  # fmt: skip
SHM_BYTES: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong, or may be.

    Attributes
    ----------
    level : "error" stops training, "warning" slows or endangers it
    what : what was found
    mend : what to do
    """

    level: str
    what: str
    mend: str


def examine(environment: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """Versions, devices, settings of NCCL and the allocator, and findings."""
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {name: version(name) for name in PACKAGES},
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "threads": torch.get_num_threads(),
        "matmul_gflops": round(matmul_peak(torch.device("cpu"), torch.float32) / 1e9, 1),
        "devices": devices(),
        "backends": [b for b in ("gloo", "nccl", "mpi", "ucc") if torch.distributed.is_backend_available(b)],
        "nccl": ".".join(map(str, torch.cuda.nccl.version())) if torch.cuda.is_available() else None,  # type: ignore[no-untyped-call]
        "settings": {k: v for k, v in sorted(environment.items()) if k.startswith(SETTINGS)},
        "findings": [
            {"level": f.level, "what": f.what, "mend": f.mend} for f in findings(environment, devices())
        ],
    }


def version(package: str) -> str | None:
    """Version of an installed package."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def devices() -> list[dict[str, Any]]:
    """The accelerators that torch sees."""
    found = []
    for i in range(torch.cuda.device_count()):
        p = torch.cuda.get_device_properties(i)
        found.append({"name": p.name, "memory": p.total_memory, "capability": f"{p.major}.{p.minor}"})
    return found


def findings(environment: Mapping[str, str], accelerators: list[dict[str, Any]]) -> list[Finding]:
    """What is wrong with the settings of this environment."""
    found = []
    if accelerators and len({(d["name"], d["memory"]) for d in accelerators}) > 1:
        found.append(Finding("warning", "accelerators of several kinds: the slowest sets the pace",
                             "choose equal ones with CUDA_VISIBLE_DEVICES"))  # fmt: skip
    if accelerators and any(float(d["capability"]) < 8.0 for d in accelerators):
        found.append(Finding("warning", "an accelerator older than capability 8.0 computes bf16 slowly",
                             'set precision.compute = "fp16"'))  # fmt: skip
    if accelerators and "expandable_segments" not in environment.get("PYTORCH_CUDA_ALLOC_CONF", ""):
        found.append(Finding("warning", "the allocator may fragment over batches of many lengths",
                             "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"))  # fmt: skip
    if environment.get("NCCL_P2P_DISABLE") == "1" or environment.get("NCCL_SHM_DISABLE") == "1":
        found.append(Finding("warning", "NCCL may not use the direct paths between accelerators",
                             "unset NCCL_P2P_DISABLE and NCCL_SHM_DISABLE"))  # fmt: skip
    if environment.get("NCCL_DEBUG", "").upper() in ("INFO", "TRACE"):
        found.append(Finding("warning", "NCCL_DEBUG writes much and slows the start",
                             "export NCCL_DEBUG=WARN"))  # fmt: skip
    threads = environment.get("OMP_NUM_THREADS", "")
    if threads.isdigit() and int(threads) > (os.cpu_count() or 1):
        found.append(Finding("warning", f"OMP_NUM_THREADS={threads} on {os.cpu_count()} cores",
                             "unset it: holoshard divides the cores among the processes"))  # fmt: skip
    if torch.cuda.is_available() and not torch.distributed.is_nccl_available():
        found.append(
            Finding("error", "this torch has CUDA but no NCCL", "install a build of torch with NCCL")
        )
    if os.path.isdir("/dev/shm") and shutil.disk_usage("/dev/shm").total < SHM_BYTES:
        found.append(Finding("warning", "/dev/shm is smaller than 1 GiB: NCCL may fail between processes",
                             "start the container with --shm-size=8g"))  # fmt: skip
    if version("tensorboard") is None:
        found.append(Finding("warning", "tensorboard is not installed: run.tensorboard will not work",
                             "pip install 'holoshard[train]'"))  # fmt: skip
    return found


def text_of(result: Mapping[str, Any]) -> str:
    """The examination for a person."""
    lines = [f"Python {result['python']} on {result['platform']}, {result['cores']} cores, "
             f"{result['threads']} threads, {result['matmul_gflops']:.0f} Gflop/s float32"]  # fmt: skip
    lines.append(", ".join(f"{name} {found or 'missing'}" for name, found in result["packages"].items()))
    lines.append(f"backends: {', '.join(result['backends'])}; NCCL {result['nccl'] or 'not used'}")
    lines += [f"accelerator {i}: {d['name']}, {d['memory'] / 2**30:.0f} GiB, capability {d['capability']}"
              for i, d in enumerate(result["devices"])]  # fmt: skip
    lines += [] if result["devices"] else ["no accelerator: training runs on the CPU"]
    lines += [f"{name}={value}" for name, value in result["settings"].items()]
    lines += [f"{f['level']}: {f['what']}; {f['mend']}" for f in result["findings"]] or ["nothing is wrong"]
    return "\n".join(lines)
