"""What ``python -m mlx_norms bench`` and the scripts in bench/ share.

cells.py and ladder.py have what is timed and how many bytes it moves, contestants.py and peers.py
who does it, clocks.py how it is timed, measuring.py and device_copy.py what it is held against,
results.py, tables.py and plots.py where figures go. model.py, tracing.py, capture.py and
metal_sim.py are ways of their own, and command.py puts all together. Only what prints needs rich;
matplotlib, torch and Liger are imported where they are used.
"""
