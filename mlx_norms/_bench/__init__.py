"""What measures: for the commands of ``python -m mlx_norms`` and for the scripts in bench/.

It knows no command. What is timed is in configs.py and ladder.py, who does it in providers.py and
peers.py, and of language models in models.py, llama.py and sides.py. timing.py measures in rounds,
by one of the clocks there or in clocks.py; kernels.py does by CUPTI, which says times at the end.
device_copy.py and measuring.py have what figures are held against, machine.py what they depend on.
They go to results.py, tables.py and plots.py, and into a page by page_part.py; script.py is what
scripts have in common. Only what prints needs rich; matplotlib, torch and Liger are imported where
they are used.
"""
