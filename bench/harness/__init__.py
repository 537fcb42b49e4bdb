"""What the benchmarks share: the runner of suites, what they time, and where the figures go.

suite.py runs the cases of a suite, by the clocks of clocks.py, and prints its table; results.py has
the lines and files. configs.py and images.py have what is timed, providers.py and
peers.py the sides that compute it; blocks.py, models.py and llama.py are about models.
copy_speed.py measures the copy that figures are compared with, conditions.py names the facts they
depend on, and page_part.py has the tables of pages. Only what prints needs rich; matplotlib, torch
and Liger are imported where they are used.
"""
