"""What ``python -m mlx_norms bench`` alone has: command.py puts it together."""
