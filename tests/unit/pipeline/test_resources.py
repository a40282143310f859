"""How many workers a job takes by itself: what this process may use, not what the host has."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from prep.config import ProcessingConfig
from prep.pipeline import resources

if TYPE_CHECKING:
    from collections.abc import Callable

GB = 10**9
UNLIMITED_V1 = "9223372036854771712"


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., None]:
    """A made-up machine: processors by affinity, memory, this process's cgroups and their files."""

    def make(
        processors: int = 64, memory: int = 256 * GB, cgroup: str = "", files: dict[str, str] | None = None
    ) -> None:
        listing = tmp_path / "proc-self-cgroup"
        listing.write_text(cgroup, encoding="utf-8")
        for name, content in (files or {}).items():
            path = tmp_path / "cgroup" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        pages = {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": memory // 4096}
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(processors)))
        monkeypatch.setattr(os, "sysconf", pages.__getitem__)
        monkeypatch.setattr(resources, "CGROUP", tmp_path / "cgroup")
        monkeypatch.setattr(
            resources, "Path", lambda path: listing if path == "/proc/self/cgroup" else Path(path)
        )

    return make


def test_without_limits_affinity_counts(host: Callable[..., None]) -> None:
    host(processors=6)
    assert resources.available_processors() == 6
    assert resources.available_memory() == 256 * GB // 4096 * 4096
    assert resources.default_workers() == 6


def test_a_container_of_four_processors_and_8_gb_on_a_large_host(host: Callable[..., None]) -> None:
    """Case Q67."""
    host(cgroup="0::/\n", files={"cpu.max": "400000 100000\n", "memory.max": f"{8 * GB}\n"})
    assert resources.available_processors() == 4
    assert resources.available_memory() == 8 * GB
    assert resources.default_workers() == 4


def test_memory_alone_can_limit_the_workers(host: Callable[..., None]) -> None:
    """Case Q67."""
    host(cgroup="0::/\n", files={"cpu.max": "max 100000\n", "memory.max": f"{2 * GB}\n"})
    assert resources.available_processors() == 64
    assert resources.default_workers() == 2


def test_there_is_always_one_worker(host: Callable[..., None]) -> None:
    host(cgroup="0::/\n", files={"cpu.max": "10000 100000\n", "memory.max": "50000000\n"})
    assert resources.available_processors() == 1
    assert resources.default_workers() == 1


@pytest.mark.parametrize(("quota", "expected"), [("150000", 1), ("200000", 2), ("299999", 2)])
def test_parts_of_a_processor_are_rounded_down(host: Callable[..., None], quota: str, expected: int) -> None:
    host(cgroup="0::/a\n", files={"a/cpu.max": f"{quota} 100000\n"})
    assert resources.available_processors() == expected


@pytest.mark.parametrize("where", ["", "slice/", "slice/job/"])
def test_the_limit_of_every_cgroup_above_counts(host: Callable[..., None], where: str) -> None:
    files = {"slice/job/cpu.max": "max 100000\n", "slice/job/memory.max": "max\n"}
    host(
        cgroup="0::/slice/job\n",
        files={**files, f"{where}cpu.max": "300000 100000\n", f"{where}memory.max": f"{3 * GB}\n"},
    )
    assert resources.available_processors() == 3
    assert resources.available_memory() == 3 * GB


def test_the_smallest_of_several_limits_counts(host: Callable[..., None]) -> None:
    host(
        processors=8,
        cgroup="0::/slice/job\n",
        files={
            "slice/cpu.max": "200000 100000\n",
            "slice/job/cpu.max": "500000 100000\n",
            "slice/memory.max": f"{9 * GB}\n",
            "slice/job/memory.max": f"{5 * GB}\n",
        },
    )
    assert resources.available_processors() == 2
    assert resources.available_memory() == 5 * GB


def test_affinity_below_the_quota_counts(host: Callable[..., None]) -> None:
    host(processors=2, cgroup="0::/\n", files={"cpu.max": "800000 100000\n"})
    assert resources.available_processors() == 2


def test_version_1_has_a_folder_a_controller(host: Callable[..., None]) -> None:
    host(
        cgroup="5:memory:/job\n4:cpu,cpuacct:/job\n1:name=systemd:/other\n",
        files={
            "cpu/job/cpu.cfs_quota_us": "400000\n",
            "cpu/job/cpu.cfs_period_us": "100000\n",
            "memory/job/memory.limit_in_bytes": f"{8 * GB}\n",
        },
    )
    assert resources.available_processors() == 4
    assert resources.available_memory() == 8 * GB


def test_version_1_in_a_container_that_sees_its_own_cgroup_as_the_root(host: Callable[..., None]) -> None:
    host(
        cgroup="5:memory:/docker/abc\n4:cpuacct,cpu:/docker/abc\n",
        files={
            "cpu/cpu.cfs_quota_us": "150000\n",
            "cpu/cpu.cfs_period_us": "50000\n",
            "memory/memory.limit_in_bytes": f"{4 * GB}\n",
        },
    )
    assert resources.available_processors() == 3
    assert resources.available_memory() == 4 * GB


def test_version_1_without_limits_is_no_limit(host: Callable[..., None]) -> None:
    host(
        processors=8,
        memory=16 * GB,
        cgroup="5:memory:/job\n4:cpu,cpuacct:/job\n",
        files={
            "cpu/job/cpu.cfs_quota_us": "-1\n",
            "cpu/job/cpu.cfs_period_us": "100000\n",
            "memory/job/memory.limit_in_bytes": f"{UNLIMITED_V1}\n",
        },
    )
    assert resources.available_processors() == 8
    assert resources.available_memory() == 16 * GB // 4096 * 4096


@pytest.mark.parametrize("content", ["", "nonsense\n", "1 2 3\n", "max\n"])
def test_files_that_cannot_be_understood_limit_nothing(host: Callable[..., None], content: str) -> None:
    host(processors=5, cgroup="0::/\n", files={"cpu.max": content, "memory.max": content})
    assert resources.available_processors() == 5
    assert resources.available_memory() == 256 * GB // 4096 * 4096


@pytest.mark.parametrize("path", ["/../..", "/../job", "/", "", "/käfig"])
def test_any_name_of_a_cgroup_is_survived(host: Callable[..., None], path: str) -> None:
    host(processors=5, cgroup=f"0::{path}\n", files={"cpu.max": "200000 100000\n"})
    assert resources.available_processors() == 2


def test_a_system_without_cgroups_has_none(
    host: Callable[..., None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    host(processors=3)
    monkeypatch.setattr(resources, "Path", lambda _: tmp_path / "none")
    assert resources.available_processors() == 3


@pytest.mark.parametrize(("workers", "readers"), [(1, 1), (2, 1), (4, 1), (8, 2), (16, 4), (64, 4)])
def test_readers_are_a_few_for_many_tokenizers(workers: int, readers: int) -> None:
    assert resources.default_readers(workers) == readers


def test_a_number_in_the_configuration_goes_before_what_is_found(host: Callable[..., None]) -> None:
    host(processors=2)
    assert resources.worker_count(ProcessingConfig(workers=0)) == 0
    assert resources.worker_count(ProcessingConfig(workers=100)) == 100
    assert resources.worker_count(ProcessingConfig()) == 2
