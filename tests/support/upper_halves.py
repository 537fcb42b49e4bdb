"""Which kernels of a library return with upper halves of vector registers in use.

By the machine code of x86-64, which objdump reads: along each way through a function of the tables,
calls and tail calls included, to where it returns. An instruction that writes to a register of 32
or 64 bytes puts its upper half in use, and vzeroupper ends that; registers 16 to 31 do not count.
"""

import itertools
import math
import re
import subprocess
from bisect import bisect

LINE = re.compile(r"^ *([0-9a-f]+):\t(?:(?:bnd|notrack|rep\w*|{\w+}) )*(\w+) *([^#\n]*)", re.M)
WRITES = re.compile(r"%[yz]mm(?:\d|1[0-5])(?:{[^}]*})*$")  # the destination is the last operand
FRAME = re.compile(r"pc=([0-9a-f]+)\.\.([0-9a-f]+)")
POINTER = re.compile(r"^([0-9a-f]+) R_X86_64_RELATIVE +\*ABS\*\+0x([0-9a-f]+)", re.M)
TABLE = re.compile(r"^([0-9a-f]+) .*\t([0-9a-f]+) +(?:\S+ +)?(\w*kernels_\w+)$", re.M)


class Code:
    """The machine code of a library.

    Attributes:
        kernels: The functions of its tables, by a table's symbol and the place in it.
    """

    def __init__(self, path):
        text = _objdump(path, "-d", "--no-show-raw-insn", "--dwarf=frames")
        lines = [(int(at, 16), name, rest.strip()) for at, name, rest in LINE.findall(text)]
        assert len(lines) == text.count(":\t")
        self._instructions = {at: (name, operands) for at, name, operands in lines}
        self._next = {a[0]: b[0] for a, b in itertools.pairwise(lines)}
        self._functions = sorted(_numbers(FRAME, text))
        self._states = {}
        data = _objdump(path, "-T", "-R")
        pointers = dict(_numbers(POINTER, data))
        self.kernels = {
            (table, i): pointers[int(at, 16) + 8 * i]
            for at, size, table in TABLE.findall(data)
            for i in range(int(size, 16) // 8)
        }

    def in_use(self):
        """The kernels that may return so, called with no upper half in use."""
        return [kernel for kernel, at in self.kernels.items() if True in self._returns(at, False)]

    def _returns(self, function, used):
        """Whether upper halves may be in use as a function returns: True, False or either."""
        key = function, used
        if key not in self._states:
            self._states[key] = {True}  # the worst, of a call of itself
            self._states[key] = set(self._walk(function, used))
        return self._states[key]

    def _walk(self, function, used):
        ways, seen = [(function, used)], set()
        while ways:
            if (way := ways.pop()) in seen:
                continue
            seen.add(way)
            at, used = way
            name, operands = self._instructions[at]
            if name == "ret":
                yield used
            elif name == "jmp" and operands[0] == "*":
                yield used  # from another function,
                if "%rip" not in operands:  # or on in this one, by a table
                    ways += [(to, used) for to in self._function_around(at)]
            elif name == "call" and operands[0] != "*":
                ways += [(self._next[at], left) for left in self._returns(_target(operands), used)]
            elif name not in ("hlt", "ud2"):
                if name[0] == "j":
                    ways.append((_target(operands), used))
                if name != "jmp":
                    used = name[:5] != "vzero" and (used or bool(WRITES.search(operands)))
                    ways.append((self._next[at], used))

    def _function_around(self, at):
        at, end = self._functions[bisect(self._functions, (at, math.inf)) - 1]
        while at < end:
            yield at
            at = self._next[at]


def _objdump(path, *options):
    command = ["objdump", *options, path]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def _target(operands):
    return int(operands.split()[0], 16)


def _numbers(pattern, text):
    return [tuple(int(number, 16) for number in found) for found in pattern.findall(text)]
