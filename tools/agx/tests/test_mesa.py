from agx import mesa

MESSAGES = """threadgroup bytes: 1024
SHADER-DB: CS shader: 97 instrs, 43 alu, 20 fscib, 30 ic, 760 code size, 47 gprs, 12 uniforms, \
0 scratch, 1024 threads, 1 loops, 3:4 spills:fills, 45 preamble inst
"""
LISTING = """block0 {
   r0 = mov_imm #0x1
}
block0 {
   r0 = get_sr thread_position_in_grid.x
   r1_r2_r3_r4 = device_load u0, r0
   wait 0
   r5 = ffma r1, r2, r3
   stack_store r5
   r6 = iadd r5, r1
   device_store r6, u0
   stop
}
   0: 0501 mov_imm r0, 1
   2: 0e00 ffma r0
"""


def test_statistics_are_read():
    found = mesa.statistics(mesa.Output(LISTING, MESSAGES))
    assert (found.half_registers, found.threads_per_core) == (47, 1024)
    assert (found.instructions, found.code_bytes) == (97, 760)
    assert (found.spills, found.fills, found.threadgroup_bytes) == (3, 4, 1024)


def test_instructions_are_those_of_the_last_listing_by_class():
    counts = mesa.statistics(mesa.Output(LISTING, MESSAGES)).classes
    assert {name: n for name, n in counts.items() if n} == {
        "move": 1,
        "load": 1,
        "wait": 1,
        "float": 1,
        "stack": 1,
        "integer": 1,
        "store": 1,
        "flow": 1,
    }


def test_of_a_kernel_without_statistics_it_says_what_mesa_said():
    said = "threadgroup bytes: 0\n\ninvalid block\nclBuildProgram(...): -11\n"
    assert mesa.statistics(mesa.Output("", said)) == "Mesa: invalid block"
    assert mesa.statistics(mesa.Output("", "")) == "Mesa: it said nothing"
