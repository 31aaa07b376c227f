"""Control groups of versions 1 and 2: where their files are, and what they say."""

from __future__ import annotations

import pytest

from antifreeze._linux import cgroups

VERSION_1 = "4:memory:/docker/ab\n3:cpu,cpuacct:/docker/ab\n1:name=systemd:/docker/ab\n"
VERSION_2 = "0::/user.slice/run-1.scope\n"


def reader(files: dict[str, str]) -> cgroups.Read:
    return lambda path: files.get(path.removeprefix(f"{cgroups.ROOT}/"), "")


def folders(text: str) -> list[list[str]]:
    return [
        [each.removeprefix(cgroups.ROOT) for each in group.folders]
        for group in cgroups.groups_in(text)
    ]


def test_a_group_of_version_2_has_one_folder_for_all_controllers() -> None:
    assert folders(VERSION_2) == [["/user.slice/run-1.scope", "/user.slice", ""]]
    assert folders("0::/\n") == [[""]]


def test_a_group_of_version_1_has_a_folder_in_the_hierarchy_of_each_controller() -> None:
    names = [group.controller for group in cgroups.groups_in(VERSION_1)]
    assert names == ["memory", "cpu", "cpuacct", "name=systemd"]
    assert folders(VERSION_1)[0] == ["/memory/docker/ab", "/memory/docker", "/memory"]


@pytest.mark.parametrize("path", ["/..", "/../../etc", "/a/../../x", "/../cgroup2"])
def test_a_path_that_leads_out_of_the_hierarchy_is_its_top(path: str) -> None:
    assert folders(f"0::{path}\n") == [[""]]


def test_a_path_may_have_a_colon_and_other_lines_are_passed_over() -> None:
    assert folders("0::/a:b\nnonsense\n0:\n") == [["/a:b", ""]]


def test_groups_within_groups_are_looked_at_so_far() -> None:
    assert len(folders(f"0::{'/a' * 1000}\n")[0]) == cgroups.MOST_LEVELS + 1


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({"cpu.max": "150000 100000"}, 1.5),
        ({"a/cpu.max": "max 100000", "cpu.max": "200000 100000"}, 2.0),
        ({"a/cpu.max": "50000 100000", "cpu.max": "200000 100000"}, 0.5),
        ({"cpu.max": "max 100000"}, 0.0),
        ({"a/cpu.cfs_quota_us": "300000", "a/cpu.cfs_period_us": "100000"}, 3.0),
        ({"a/cpu.cfs_quota_us": "-1", "a/cpu.cfs_period_us": "100000"}, 0.0),
        ({"cpu.max": "100000 0"}, 0.0),
        ({"cpu.max": "nonsense"}, 0.0),
        ({}, 0.0),
    ],
)
def test_the_quota_is_that_of_the_first_group_that_has_one(
    files: dict[str, str], cores: float
) -> None:
    (group,) = cgroups.groups_in("0::/a\n")
    assert cgroups.quota_cores(group.folders, reader(files)) == cores


def test_a_value_has_a_name_in_each_version() -> None:
    names = ("memory.max", "memory.limit_in_bytes")
    (group,) = cgroups.groups_in("7:memory:/a\n")
    read = reader({"memory/memory.limit_in_bytes": "4096"})
    assert cgroups.first_value(group.folders, *names, read=read) == "4096"
    assert cgroups.first_value(group.folders, "memory.events", read=read) == ""
