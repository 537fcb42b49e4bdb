"""The code of ``python -m mlx_norms bench`` alone; command.py puts it together."""
