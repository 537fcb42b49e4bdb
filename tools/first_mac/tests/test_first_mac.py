"""The runner of .ci/mac quick: whatever ends a process, the file says it and all else."""

import json
import os
import re
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from first_mac import __main__ as first_mac
from first_mac import checks, facts, items, metal_api, models, page, running, steps, suite, texts
from first_mac.running import Part
from support.variant import ROOT, environment

FAILED, NOT_RUN, PASSED, TIMED_OUT = (
    items.FAILED,
    items.NOT_RUN,
    items.PASSED,
    items.TIMED_OUT,
)
LONG = 60  # seconds: a limit that is not met
PROCESS = """
import os, signal, subprocess, sys, time
from first_mac import items

def good():
    return {"value": 1}

def no_such_thing():
    raise items.NotRun("there is no compiler", "install it")

def wrong():
    raise RuntimeError("error: reference to 'level' is ambiguous")

def abort():
    print("failed assertion", flush=True)
    os.abort()

def hang():
    child = subprocess.Popen(["sleep", "600"])
    open(sys.argv[1], "w").write(str(child.pid))
    time.sleep(600)

"""


@pytest.fixture
def process(tmp_path):
    """Runs a part whose process has these lines."""

    def run(lines, seconds=LONG, arguments=(), **variables):
        file = tmp_path / "process.py"
        file.write_text(PROCESS + textwrap.dedent(lines))
        part = Part("part", [sys.executable, file, *arguments], variables)
        return running.run(part, seconds, environment(), tmp_path)

    return run


def statuses(found):
    return {item["item"]: item["status"] for item in found["items"]}


def wait_for_the_end_of(pid):
    """A process that was killed may not be gone at once; one that was not is there for long."""
    for _ in range(600):
        try:
            os.kill(pid, 0)
            state = Path(f"/proc/{pid}/stat")
            if state.exists() and state.read_text().split(")")[1].split()[0] == "Z":
                return
        except (ProcessLookupError, FileNotFoundError):
            return
        time.sleep(0.1)
    raise AssertionError(f"process {pid} was not ended")


def test_an_item_that_fails_ends_no_other(process):
    found = process("items.run([('a', good), ('b', wrong), ('c', no_such_thing), ('d', good)])")
    assert statuses(found) == {"a": PASSED, "b": FAILED, "c": NOT_RUN, "d": PASSED}
    assert found["status"] == FAILED and "level" in found["items"][1]["reason"]
    assert found["items"][2]["help"] == "install it"


def test_an_abort_is_its_items_and_the_rest_is_done(process):
    found = process(
        "items.run([('a', good), ('b', abort), ('c', good), ('d', abort), ('e', good)])"
    )
    assert statuses(found) == {"a": PASSED, "b": FAILED, "c": PASSED, "d": FAILED, "e": PASSED}
    assert "SIGABRT" in found["items"][1]["reason"]
    assert "failed assertion" in found["items"][1]["said"]
    assert found["not_reached"] == []


def test_aborts_again_and_again(process):
    found = process("items.run([(str(i), abort) for i in range(9)])")
    assert found["status"] == FAILED and len(found["not_reached"]) == 3


def test_what_hangs_is_ended_with_all_that_it_started(process, tmp_path):
    pid = tmp_path / "pid"
    # The limit is what ends it: on a slow machine the item may not even have begun.
    found = process("items.run([('a', hang), ('b', good)])", seconds=3, arguments=[str(pid)])
    assert found["status"] == TIMED_OUT
    assert "b" in found["not_reached"] or not found["items"]
    if pid.exists() and pid.read_text():
        wait_for_the_end_of(int(pid.read_text()))


def test_what_was_said_counts_if_the_process_does_not_end(process):
    found = process("items.run([('a', good)])\ntime.sleep(600)", seconds=4)
    if found["items"]:  # on a slow machine the item may not have been reached
        assert found["status"] == PASSED and "did not end by itself" in found["reason"]


@pytest.mark.parametrize("lines", ["raise SystemExit(3)", "import no_such_module", ""])
def test_a_process_that_says_nothing_has_failed(process, lines):
    found = process(lines)
    assert found["status"] == FAILED and found["reason"]


def test_a_command_that_is_not_there(tmp_path):
    found = running.run(Part("part", ["/no/such/command"]), LONG, {}, tmp_path)
    assert found["status"] == FAILED and "No such file" in found["said"]


def test_what_cannot_be_run_starts_nothing(tmp_path):
    part = Part("part", ["/no/such/command"], cannot=("no metallibs", "xcodebuild"))
    found = running.run(part, LONG, {}, tmp_path)
    assert (found["status"], found["reason"], found["help"]) == (
        NOT_RUN,
        "no metallibs",
        "xcodebuild",
    )


@pytest.mark.parametrize(
    "of, verdict",
    [
        ([PASSED, NOT_RUN], PASSED),
        ([NOT_RUN], NOT_RUN),
        ([], NOT_RUN),
        ([PASSED, TIMED_OUT, NOT_RUN], TIMED_OUT),
        ([TIMED_OUT, FAILED], FAILED),
    ],
)
def test_the_verdict_of_several(of, verdict):
    assert running.verdict(of) == verdict


def line_of(code):
    return [sys.executable, "-c", f"from first_mac import items\nimport os\n{code}"]


def a_run(tmp_path, monkeypatch, *made):
    monkeypatch.setattr(steps, "STEPS", made)
    monkeypatch.setattr(first_mac, "environment_of", lambda simulated: environment())
    status = first_mac.run(tmp_path / "out", False, [step.name for step in made])
    return status, json.loads((tmp_path / "out" / "first_mac.json").read_text())


def step(name, *parts, seconds=LONG, **options):
    return steps.Step(name, f"about {name}", seconds, lambda machine: list(parts), **options)


def raising(machine):
    raise OSError("no space is left")


def test_each_step_fails_in_its_way_and_the_file_says_all_else(tmp_path, monkeypatch):
    good = Part("good", line_of("items.run([('x', lambda: {'value': 7})])"))
    abort = Part("abort", line_of("items.run([('y', os.abort), ('z', lambda: None)])"))
    status, found = a_run(
        tmp_path,
        monkeypatch,
        step("facts", good),
        steps.Step("broken", "cannot be made", LONG, raising),
        step("tests", abort, good, together=True),
        step("none", Part("none", [], cannot=("there is no compiler", "xcodebuild"))),
        step("last", good),
    )
    assert status == 1 and found["finished"]
    assert {of["step"]: of["status"] for of in found["steps"]} == {
        "facts": PASSED,
        "broken": FAILED,
        "tests": FAILED,
        "none": NOT_RUN,
        "last": PASSED,
    }
    text = (tmp_path / "out" / "first_mac.md").read_text()
    assert text == page.page(found)
    for said in ("no space is left", "SIGABRT", "there is no compiler", "`xcodebuild`"):
        assert said in text
    assert re.search(r"^\| x \| 7 \|$", text, re.M)
    assert "Send `first_mac.json`" in text


def test_a_run_that_is_interrupted_leaves_what_it_found(tmp_path, monkeypatch):
    good = Part("good", line_of("items.run([('x', lambda: {'value': 7})])"))

    def interrupted(machine):
        raise KeyboardInterrupt

    made = (step("facts", good), steps.Step("next", "", LONG, interrupted))
    with pytest.raises(KeyboardInterrupt):
        a_run(tmp_path, monkeypatch, *made)
    found = json.loads((tmp_path / "out" / "first_mac.json").read_text())
    assert not found["finished"] and found["steps"][0]["parts"][0]["items"][0]["value"] == 7
    assert "interrupted" in (tmp_path / "out" / "first_mac.md").read_text()


def test_an_interrupted_run_ends_its_processes(tmp_path):
    """As Ctrl-C does, which reaches no process in a group of its own."""
    code = """
        import sys
        from pathlib import Path
        from first_mac import __main__ as first_mac, steps
        from first_mac.running import Part
        from support.variant import environment
        hang = [sys.executable, "-c", "from first_mac import items; import os, pathlib, time;"
                "pathlib.Path(%r).write_text(str(os.getpid()));"
                "items.run([('x', lambda: time.sleep(600))])"]
        steps.STEPS = (steps.Step("one", "", 600, lambda machine: [Part("p", hang)]),)
        first_mac.environment_of = lambda simulated: environment()
        first_mac.signal.signal(first_mac.signal.SIGTERM, first_mac.signal.default_int_handler)
        first_mac.run(Path(%r), False, ["one"])
    """
    pid, out = tmp_path / "pid", tmp_path / "out"
    run = [sys.executable, "-c", textwrap.dedent(code) % (str(pid), str(out))]
    with subprocess.Popen(run, env=environment(), stderr=subprocess.DEVNULL) as process:
        while process.poll() is None and not (pid.exists() and pid.read_text()):
            time.sleep(0.05)
        process.terminate()
        assert process.wait() != 0
    found = json.loads((out / "first_mac.json").read_text())
    assert not found["finished"] and [step["step"] for step in found["steps"]] == ["one"]
    wait_for_the_end_of(int(pid.read_text()))


def test_nothing_that_fails_is_no_failure_of_the_run(tmp_path, monkeypatch):
    good = Part("good", line_of("items.run([('x', lambda: None)])"))
    status, _ = a_run(tmp_path, monkeypatch, step("one", good))
    assert status == 0


def test_limits_are_twelve_minutes_at_most():
    assert sum(step.seconds for step in steps.STEPS) <= steps.LIMIT == 12 * 60
    assert [step.name for step in steps.STEPS] == [
        *("facts", "texts", "metallibs", "selftest", "validation", "tests", "bench"),
        *("choices", "models"),
    ]


def test_processes_of_each_step(tmp_path):
    machine = steps.Machine(tmp_path)
    made = {step.name: step.parts(machine) for step in steps.STEPS}
    validated = [part.variables for part in made["validation"]]
    assert all(of == {"MTL_DEBUG_LAYER": "1", "METAL_DEVICE_WRAPPER_TYPE": "1"} for of in validated)
    assert sum(int(part.variables[suite.TESTS]) for part in made["tests"]) == 200
    assert all("--junitxml" in " ".join(map(str, part.command)) for part in made["tests"])
    names = [part.name for part in made["texts"]]
    assert {f"Metal {version}" for version in metal_api.VERSIONS} <= set(names)


def test_each_check_of_selftest_is_in_one_library():
    from mlx_norms.commands import selftest

    labels = [op.label for op in selftest.NORMS]
    labels += ["matmul by gemv, float32", "quantized_matmul, 4 bits, float32"]
    labels += ["rms_norm_linear, weights of float, float32"]
    assert {checks.library_of(label) for label in labels} == set(checks.LIBRARIES)
    assert checks.library_of("rms_norm axis 1, float32") == "channels"
    assert checks.library_of("rms_norms heads HD and D") == "rms_norms"
    assert checks.library_of("rms_norm heads HD") == "norm"


@pytest.mark.parametrize("count, kept", [(3, [0, 3, 6]), (20, list(range(10)))])
def test_tests_are_spread(count, kept):
    assert suite.spread(list(range(10)), count) == kept


TESTS = """
import os
def test_a(): pass
def test_b(): assert False, "it is off by 3"
def test_c(): os.abort()
def test_d(): pass
"""


def test_an_abort_in_a_test(tmp_path):
    (tmp_path / "test_of_it.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    command += ["-p", "first_mac.suite", "--rootdir", tmp_path, "-c", os.devnull]
    part = Part("tests", [*command, tmp_path / "test_of_it.py"], {suite.TESTS: "50"})
    found = running.run(part, LONG, environment(), tmp_path)
    verdicts = {name.partition("::")[2]: status for name, status in statuses(found).items()}
    assert verdicts == {"test_a": PASSED, "test_b": FAILED, "test_c": FAILED, "test_d": PASSED}
    reasons = [item.get("reason", "") for item in found["items"]]
    assert "it is off by 3" in reasons[1] and "SIGABRT" in reasons[2]


def test_rotations_are_the_same_angles():
    """Of the three kernels that `choices` times, on the simulated GPU."""
    import numpy as np

    import metalsim
    from first_mac import choices

    header = (ROOT / "kernels" / "rope" / "angles.h").read_text().replace("#pragma once", "")
    angles, found = np.arange(64, dtype=np.float32) / 4, []
    for rotate in (choices._OURS, choices._FAST, choices._PRECISE):
        text = f"""{header}
        [[kernel]] void rotation(device const float* x [[buffer(0)]],
            device float* y [[buffer(1)]],
            uint3 thread_position_in_grid [[thread_position_in_grid]]) {{
          {choices._ROTATION.format(rotate=rotate)}
        }}"""
        library = metalsim.Library.from_source(text, name="rotation")
        found.append(np.zeros(64, np.float32))
        library.launch("rotation", {"x": angles, "y": found[-1]}, grid=64, group=32, out=["y"])
    turned = angles[:, None].astype(np.float64) + np.arange(16)
    exact = (np.sin(turned) + 2 * np.cos(turned)).sum(axis=1)
    for values, allowed in zip(found, (1e-4, 1e-2, 1e-4), strict=True):
        assert np.abs(values - exact).max() < allowed


@pytest.mark.applies(sys.platform != "darwin")
def test_elsewhere_there_is_no_metal(monkeypatch):
    assert texts.cannot("3.1") == ("there is no Metal here",)
    with pytest.raises(items.NotRun):
        metal_api.Metal()


# Messages to Metal, with the types that arm64's calls have. Version 4.1 is refused.
RUNTIME = r"""
#include <stdio.h>
#include <string.h>
static char device, library, error, description, options, string;
static long version;
static const char* text;
void* MTLCreateSystemDefaultDevice() { return &device; }
void* objc_getClass(const char* name) { return strdup(name); }
void* sel_registerName(const char* name) { return strdup(name); }
void* objc_msgSend(void* to, const char* what, void* a, void* b, void** c) {
  if (!strcmp(what, "supportsFamily:")) return (void*)(long)(to == &device && (long)a <= 1007);
  if (!strcmp(what, "setLanguageVersion:")) { version = (long)a; return 0; }
  if (!strcmp(what, "setFastMathEnabled:")) return 0;
  if (!strcmp(what, "stringWithUTF8String:")) { text = a; return &string; }
  if (!strcmp(what, "localizedDescription")) return to == &error ? &description : 0;
  if (!strcmp(what, "UTF8String")) return to == &description ? "program_source:1: no" : 0;
  if (!strcmp(what, "newLibraryWithSource:options:error:")) {
    if (version == 0x40001 || strcmp(text, "kernel") || a != &string || b != &options) {
      *c = &error;
      return 0;
    }
    return &library;
  }
  return !strcmp(what, "release") ? 0 : &options;
}
"""


@pytest.mark.applies(sys.platform != "darwin")
def test_messages_to_metal(tmp_path, monkeypatch):
    source, library = tmp_path / "runtime.c", tmp_path / "runtime.so"
    source.write_text(RUNTIME)
    subprocess.run(["cc", "-shared", "-fPIC", "-w", source, "-o", library], check=True)
    monkeypatch.setattr(metal_api.Metal, "objc", str(library))
    monkeypatch.setattr(metal_api.Metal, "framework", str(library))
    metal = metal_api.Metal()
    assert metal.families() == ["Apple5", "Apple6", "Apple7"]
    assert metal.compile("kernel", "4.0") is None
    with pytest.raises(RuntimeError, match="program_source:1: no"):
        metal.compile("kernel", "4.1")


def test_versions_of_a_system(monkeypatch):
    monkeypatch.setattr(facts.platform, "mac_ver", lambda: ("15.6", ("", "", ""), "arm64"))
    assert texts.newest() == "3.2"
    assert texts.cannot("3.2") == () and texts.cannot("4.0") == ("Metal 4.0 comes with macOS 26",)
    assert metal_api.number_of("4.1") == 0x40001


def test_no_toolchain_says_what_installs_it(tmp_path, monkeypatch):
    xcrun = tmp_path / "xcrun"
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    for said, wanted in (("missing Metal Toolchain", facts.TOOLCHAIN), ("no metal", facts.XCODE)):
        xcrun.write_text(f"#!/bin/sh\necho '{said}' >&2\nexit 1\n")
        xcrun.chmod(0o755)
        (part,) = steps._metallibs(steps.Machine(tmp_path))
        reason, help = part.cannot
        assert said in reason and help == wanted
    assert facts.TOOLCHAIN == "xcodebuild -downloadComponent MetalToolchain"


def test_metallibs_name_what_is_refused_and_what_is_not_known(tmp_path, monkeypatch):
    from first_mac.rehearsal import FAULTS_OF

    xcrun = tmp_path / "xcrun"
    xcrun.write_text(FAULTS_OF["xcode"].xcrun)
    xcrun.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    file = tmp_path / "found"
    monkeypatch.setenv(items.FOUND, str(file))
    items.run(texts.by_xcode())
    found = {item["item"]: item for item in items.ended(items.read(file))}
    assert found["rope, 3.2"]["status"] == FAILED and "ambiguous" in found["rope, 3.2"]["reason"]
    assert found["norm, 3.2"]["status"] == PASSED
    assert found["norm, 4.1"]["status"] == NOT_RUN and "newer Xcode" in found["norm, 4.1"]["help"]


def model(folder, name, size, type="llama", tokenizer=True):
    snapshot = folder / f"models--{name.replace('/', '--')}" / "snapshots" / "0"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text(json.dumps({"model_type": type}))
    if tokenizer:
        (snapshot / "tokenizer.json").write_text("{}")
    with (snapshot / "model.safetensors").open("wb") as file:
        file.truncate(size)


def test_the_smallest_model_that_fits_is_taken(tmp_path):
    assert models.cached(tmp_path, 1e12, {"llama"}) is None
    model(tmp_path, "a/large", 200 << 20)
    model(tmp_path, "a/small", 100 << 20)
    model(tmp_path, "a/tiny", 1 << 20)
    model(tmp_path, "a/bert", 90 << 20, type="bert")
    model(tmp_path, "a/bare", 90 << 20, tokenizer=False)
    assert models.cached(tmp_path, 1e12, {"llama"}) == ("a/small", 100 << 20)
    assert models.cached(tmp_path, 60 << 20, {"llama"}) is None


def test_a_home_folder_is_not_sent(monkeypatch):
    monkeypatch.setenv("HOME", "/Users/somebody")
    assert items.private("/Users/somebody/x, /Users/somebody") == "~/x, ~"


def choice(item, sides, **more):
    of = {"item": item, "status": PASSED, "seconds": 1.0, "choice": "few_threads"}
    return of | more | {"one": {side: [1e-6, t, 9e-6] for side, t in sides.items()}}


def a_file(*parts):
    of = {"format": 1, "started": "", "limit": 720, "simulated": False, "finished": True}
    of |= {"stretch": 1, "send": "here"}
    return of | {
        "steps": [
            {"step": name, "about": "", "limit": 9, "status": PASSED, "seconds": 1.0, "parts": [p]}
            for name, p in parts
        ]
    }


def part(*of, **more):
    return {"part": "p", "status": PASSED, "seconds": 1.0, "items": list(of)} | more


def test_sides_of_several_processes_are_one_row():
    text = page.page(
        a_file(
            ("choices", part(choice("a | off", {"off (today)": 3e-6}, row="a"))),
            ("choices", part(choice("a | on", {"on": 2e-6}, row="a"))),
        )
    )
    (row,) = [line for line in text.splitlines() if line.startswith("| few_threads")]
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[1:3] == ["a", "one"]
    assert cells[4:6] == ["off (today)", "on, but the bars overlap"]
    assert "off (today): 3 (1 to 9); on: 2 (1 to 9)" == cells[3]


@pytest.mark.parametrize(
    "other, said",
    [
        ([1.0, 2.0, 3.5], "b, apart"),
        ([1.0, 2.0, 4.5], "b, but the bars overlap"),
        ([7.0, 8.0, 9.0], "a"),
    ],
)
def test_the_least_is_said_beside_todays(other, said):
    assert page._least({"a": [4.0, 5.0, 6.0], "b": other}, "a") == said


def test_limits_below_their_launch_are_named():
    limits = [
        {
            "name": "norm_8_1_512_0_1",
            "kernel": "norm_8_1_512",
            "most": most,
            "group": 256,
            "memory": 0,
        }
        for most in (512, 128)
    ]
    item = {"item": "rms_norm", "status": PASSED, "pipelines": limits}
    text = page.page(a_file(("selftest", part(item))))
    assert "| norm_8_1_512 | 2 | 128 to 512 | 256 | 0 | **1 below their launch** |" in text


def test_a_wedged_virtual_machine_is_known():
    bad = {"item": "rms_norm", "status": FAILED, "reason": "Compilation failed (code=2)"}
    text = page.page(a_file(("selftest", part(bad, status=FAILED))))
    assert "known of virtual machines" in text


def test_list():
    done = subprocess.run(
        [sys.executable, "tools", "first_mac", "--list"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.splitlines()[-1].split()[0] == "720"
