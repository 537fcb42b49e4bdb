"""What the benchmarks share: what they time, by which clocks, and where the figures go.

configs.py, images.py and ladder.py define what is timed, providers.py and peers.py the providers
that compute it; models.py, llama.py and sides.py do the same for language models. clocks.py has
the clocks; kernels.py measures by CUPTI, which reports times at the end. device_copy.py and
measuring.py measure the copy and the peak that figures are compared with, conditions.py names the
facts they depend on. results.py, tables.py, plots.py and page_part.py (a generated part of a page)
are the outputs; script.py is what scripts share. Only what prints needs rich; matplotlib, torch and
Liger are imported where they are used.
"""
