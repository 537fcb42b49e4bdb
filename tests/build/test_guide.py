"""kernels/README.md's example, applied as it stands to a copy of the checkout, builds and runs."""

import json
import re
import shlex
import subprocess
import sys

import pytest

import guide
from hostmetal.build import for_tests
from support import variant
from support.checkout_copy import Copy, copy_checkout

GUIDE = guide.GUIDE.read_text()


@pytest.mark.build
@pytest.mark.instrument
def test_on_metal(tmp_path):
    for_tests("_ext")
    copy = Copy(tmp_path, guide.apply)
    assert_passed(copy.on_metal("tests/scale", "tests/norm/test_group_sizes.py"))

    (names,) = re.findall(r"^python tools mutation --metal (.*:.*)$", GUIDE, re.M)
    defects = copy.python("-c", PLANTED, *shlex.split(names)).splitlines()
    assert len(defects) == 2
    for defect in map(json.loads, defects):
        file = copy.root / defect["file"]
        text = file.read_text()
        file.write_text(defect["text"])
        output = copy.on_metal(*defect["tests"].split(), status=1)
        assert re.search("^(FAILED|ERROR) ", output, re.M)
        file.write_text(text)

    assert "y = [0. 2. 4. 6. 8.]" in alone(copy, GUIDE)
    dump(copy)
    output = alone(copy, GUIDE, "-a", "dump=float32:2:empty", "-o", "dump")
    assert "dump = [2. 2.]" in output and "1: 2\n" in output


# The defects with these names, a line each.
PLANTED = """
import json, sys
from mutation.mutant import Operated
from mutation.pinned import METAL_MUTANTS
from mutation.targets import all_sites
for mutant in [*METAL_MUTANTS, *(Operated(*each) for each in all_sites(metal=True))]:
    if mutant.name in sys.argv[1:]:
        print(json.dumps({"file": mutant.file, "text": mutant.planted(), "tests": mutant.tests}))
"""


def alone(copy, text, *more):
    """What the guide's first commands in this text print, which run a kernel by itself."""
    lines = r"^(python tools join metal .*)\n(python -c .*)\n(python tools metalsim .*?-o y)$"
    join, words, run = re.search(lines, text, re.M | re.S).groups()
    for line in (join, words):
        copy.python(*shlex.split(line)[1:])
    return copy.python(*shlex.split(run.replace("\\\n", ""))[1:], *more)


def assert_passed(output):
    assert re.search(r"^\d+ passed", output, re.M)
    assert re.search(r"hostmetal: [1-9]\d* launches, \d+ threads, 0 faults", output)


def dump(copy):
    """What the guide says of prints and of dumped intermediates."""
    parameter = "device float* dump [[buffer]],"
    dumped = "dump[thread_index] = by;"
    printed = r'__builtin_printf("%u: %g\n", thread_index, by);'
    assert all(f"`{text}`" in GUIDE for text in (parameter, dumped, printed))
    kernel = "kernels/scale/scale.metal"
    copy.replace(kernel, "    uint thread_index [[", f"{parameter}\n    uint thread_index [[")
    copy.replace(kernel, "  float v[N];\n", f"{dumped}\n{printed}\n  float v[N];\n")


@pytest.mark.build
@pytest.mark.instrument
def test_on_the_cpu_and_for_cuda(tmp_path):
    copy = Copy(tmp_path, guide.apply)
    copy.python("tools", "rebuild", "-q", "tests/scale", "tests/build/test_rooms.py")
    site = str(copy.root / "build" / "rebuilt" / "site")
    pytest = ("-m", "pytest", "-q", "-p", "no:cacheprovider")
    copy.python(*pytest, "tests/build/test_kernels.py", "-k", "not package", site=site)
    translated = "tests/build/test_cuda_translation.py"
    copy.python(*pytest, "-m", "", translated, "-k", "scale", site=site)
    listed = copy.python("-m", "mlx_norms", "info", "--kernels", site=site)
    assert re.search(r"^scale_4\nscale_8\n.*scale_flags\(3\), scale_by_array\(4\)$", listed, re.M)


def test_the_kernel_of_rows(tmp_path):
    """It is a file, and the commands below it run it."""
    section = GUIDE.partition("\n## Rows and sums\n")[2]
    (text,) = re.findall(r"^```metal\n(.*?)^```$", section, re.M | re.S)
    (path,) = re.findall(r"^It runs .* as `(.*)`:$", section, re.M)

    def add(root):
        (root / path).parent.mkdir()
        (root / path).write_text(text)

    written = re.search(r"^y = (.*)", alone(Copy(tmp_path, add), section), re.M | re.S)[1]
    values = [float(number) for number in re.findall(r"[\d.]+", written)]
    assert values == pytest.approx([n / 10 for n in range(5)] + [n / 35 for n in range(5, 10)])


class TestWhatDoesNotFit:
    @pytest.fixture
    def root(self, tmp_path):
        copy_checkout(tmp_path / "checkout")
        return tmp_path / "checkout"

    def test_a_line_that_is_gone(self, root):
        sources, line = root / "csrc" / "sources.cmake", "csrc/rope/eval_cpu.cpp"
        sources.write_text(sources.read_text().replace(line, "csrc/gone.cpp"))
        message = rf"csrc/sources.cmake has the line `{line}\)`, .* 0 times, not once"
        with pytest.raises(guide.CannotApply, match=message):
            guide.apply(root)

    def test_a_line_that_is_there_twice(self, root):
        with (root / "csrc" / "sources.cmake").open("a") as file:
            file.write("    csrc/rope/eval_cpu.cpp)\n")
        with pytest.raises(guide.CannotApply, match="2 times, not once"):
            guide.apply(root)

    def test_a_file_that_is_not_new(self, root):
        (root / "csrc" / "scale").mkdir()
        (root / "csrc" / "scale" / "scale.cpp").touch()
        message = "csrc/scale/scale.cpp is new in the guide, and the checkout has it"
        with pytest.raises(guide.CannotApply, match=message):
            guide.apply(root)

    def test_the_command_says_so(self, root):
        (root / "kernels" / "scale").mkdir()
        (root / "kernels" / "scale" / "scale.metal").touch()
        command = [sys.executable, variant.ROOT / "tools", "guide", str(root)]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 1
        assert done.stderr == (
            "kernels/scale/scale.metal is new in the guide, and the checkout has it\n"
        )
