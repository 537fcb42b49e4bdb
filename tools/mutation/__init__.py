"""Defects to plant, and what plants them."""
