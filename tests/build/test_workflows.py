"""GitHub's workflows, as far as they can be seen from here, and the steps that a Mac runs."""

import os
import re
import shutil
import subprocess

import pytest
import yaml

from support.variant import ROOT

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
JOBS = {
    f"{path.stem}, {name}": job
    for path in WORKFLOWS
    for name, job in yaml.safe_load(path.read_text())["jobs"].items()
}
ACTIONS = {
    "actions/attest-build-provenance",
    "actions/checkout",
    "actions/download-artifact",
    "actions/setup-python",
    "actions/upload-artifact",
    "pypa/gh-action-pypi-publish",
}
PUBLISHES = "release, publish"  # what others have built, and alone may do so
SCRIPT = re.compile(r"(?:^|\s)(\.ci/\S+|python tools \S+)((?: \w+)*)")
STEPS = set(re.findall(r"^(\w+)\(\)", (ROOT / ".ci" / "mac").read_text(), re.M))


def images(job):
    """Those of GitHub's that a job runs on."""
    if job["runs-on"] != "${{ matrix.image }}":
        return {job["runs-on"]}
    matrix = job["strategy"]["matrix"]
    return {*matrix.get("image", [row["image"] for row in matrix.get("include", ())])}


def test_there_are_jobs_on_both_systems():
    found = {image for job in JOBS.values() for image in images(job)}
    assert {image.partition("-")[0] for image in found} == {"ubuntu", "macos", "xcode"}


def test_each_system_has_a_quick_run_whose_file_is_kept():
    quick = JOBS["ci, quick"]
    assert images(quick) == {"macos-15", "macos-26", "xcode-27"}
    kept = next(step for step in quick["steps"] if "upload-artifact" in step.get("uses", ""))
    assert kept["with"]["path"] == "build/first_mac/" and kept["if"] == "${{ !cancelled() }}"


def test_metal_4_1_is_compiled_on_macos_27():
    rows = JOBS["ci, metal_compiler"]["strategy"]["matrix"]["include"]
    assert "4.1" in {row["image"]: row["versions"] for row in rows}["xcode-27"].split()


@pytest.mark.parametrize("job", JOBS.values(), ids=JOBS)
def test_job(job):
    """No stranger's action; it ends by itself, and runs tests, or scripts and steps that exist."""
    assert job["timeout-minutes"] > 0
    assert {step["uses"].partition("@")[0] for step in job["steps"] if "uses" in step} <= ACTIONS
    scripts = [found for step in job["steps"] for found in SCRIPT.findall(step.get("run", ""))]
    assert (
        scripts or job is JOBS[PUBLISHES] or any("pytest" in s.get("run", "") for s in job["steps"])
    )
    for path, steps in scripts:
        tool = "tools/" + path.removeprefix("python tools ").replace(".", "/")
        names = [path] if path.startswith(".ci") else [f"{tool}.py", f"{tool}/__main__.py"]
        assert any((ROOT / name).exists() for name in names)
        assert path != ".ci/mac" or STEPS.issuperset(steps.split())


def test_commits_are_formatted_by_the_same_versions():
    pinned = re.findall(
        r"(?:ruff|clang-format|check-jsonschema)==(\S+)", (ROOT / ".ci/run").read_text()
    )
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    assert [repo["rev"].removeprefix("v") for repo in config["repos"]] == pinned


def test_only_what_publishes_may_write():
    for name, job in JOBS.items():
        assert ("permissions" in job) == (name == PUBLISHES)
    needed = JOBS[PUBLISHES]["needs"]
    assert {"packages", "mac"} == {*needed}
    assert all("python tools release" in str(JOBS[f"release, {name}"]) for name in needed)


# In place of what the steps call. Metal is checked where its variables say so.
STANDINS = {
    "python": "echo python $* validated=${MTL_SHADER_VALIDATION:-0}"
    " ${MLX_NORMS_NATIVE_BFLOAT:+native}",
    "pytest": 'echo "pytest $* validated=${METAL_DEVICE_WRAPPER_TYPE:-0}"'
    ' "native=${MLX_NORMS_NATIVE_BFLOAT:-0}"; case "$*" in *norm) exit 1;; *docs) exit 5;; esac',
    "pip": 'echo "pip $* for macOS $MACOSX_DEPLOYMENT_TARGET"',
    "xcrun": "exit 1",
    "sysctl": "echo {virtual}",
}


@pytest.fixture
def mac(tmp_path):
    """Runs .ci/mac, on a Mac that is a virtual machine or not."""

    def run(*steps, virtual):
        shutil.copytree(ROOT / ".ci", tmp_path / ".ci")
        (tmp_path / "bin").mkdir()
        for folder in ("docs", "norm", "rope"):
            (tmp_path / "tests" / folder).mkdir(parents=True)
        for name, line in STANDINS.items():
            path = tmp_path / "bin" / name
            path.write_text(f"#!/bin/sh\n{line.replace('{virtual}', str(virtual))}\n")
            path.chmod(0o755)
        path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
        return subprocess.run(
            [tmp_path / ".ci" / "mac", *steps],
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
        )

    return run


def test_a_step_that_fails_keeps_no_other_from_running(mac):
    done = mac("all", virtual=0)
    assert done.returncode == 1 and not done.stderr
    verdicts = re.findall(r"^(\w+) +\d+ s  (passed|FAILED|NOT RUN)$", done.stdout, re.M)
    assert verdicts == [
        ("compile_kernels", "NOT RUN"),
        ("wheel", "passed"),
        ("selftest", "passed"),
        ("bench", "passed"),
        ("suite", "FAILED"),
        ("native_suite", "FAILED"),
        ("validated_suite", "FAILED"),
    ]
    assert "for macOS 14.0" in done.stdout
    assert "python -m mlx_norms selftest validated=0" in done.stdout
    assert "-downloadComponent MetalToolchain" in done.stdout


def test_folders_of_tests_are_processes_of_their_own(mac):
    done = mac("suite", "validated_suite", virtual=0)
    ran = re.findall(r"^pytest .*=build/mac/(\w+)\.xml (\S+) validated=(\d)", done.stdout, re.M)
    assert ran == [
        (f"{name}_tests_{folder}", f"tests/{folder}", validated)
        for name, validated in (("suite", "0"), ("validated", "1"))
        for folder in ("docs", "norm", "rope")
    ]
    # A folder without tests for a GPU has not failed.
    assert done.stdout.count("Failed: tests/norm\n") == 2


def test_no_compiler_is_no_failure(mac):
    assert mac("compile_kernels", "selftest", virtual=0).returncode == 0


def test_by_default_it_is_quick(mac):
    done = mac(virtual=0)
    assert done.returncode == 0 and "python tools first_mac validated=0" in done.stdout


@pytest.mark.parametrize("virtual, gpu", [(1, "virtual_gpu"), (0, "gpu")])
def test_figures_of_a_virtual_gpu_say_so(mac, tmp_path, virtual, gpu):
    done = mac("bench", virtual=virtual)
    assert done.returncode == 0 and not done.stderr
    figures = tmp_path / "build" / "bench"
    printed = (figures / f"norm_{gpu}.txt").read_text()
    label = "Measured on a virtual GPU: these are not figures of a Mac.\n"
    assert printed == label * virtual + (
        f"python bench mac --csv build/bench/mac_{gpu}.csv validated=0\n"
        f"python bench mac --csv build/bench/mac_native_{gpu}.csv validated=0 native\n"
        f"python bench norm --csv build/bench/norm_{gpu}.csv validated=0\n"
    )
    assert printed in done.stdout
