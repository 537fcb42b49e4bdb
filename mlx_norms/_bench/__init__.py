"""Benchmark code shared by the commands of ``python -m mlx_norms`` and the scripts in bench/.

It depends on no command. configs.py and ladder.py define what is timed, providers.py and peers.py
the providers that compute it; models.py, llama.py and sides.py do the same for language models.
timing.py measures in rounds, by the host's clock or the clocks in clocks.py; kernels.py measures by
CUPTI, which reports times at the end. device_copy.py and measuring.py measure the copy and the peak
that figures are compared with, machine.py names the facts they depend on. results.py, tables.py,
plots.py and page_part.py (a generated part of a page) are the outputs; script.py is what scripts
share. Only what prints needs rich; matplotlib, torch and Liger are imported where they are used.
"""
