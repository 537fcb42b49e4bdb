"""``python bench norm``, ``backward``, ``ladder`` and ``model``; bench.py puts it together."""
