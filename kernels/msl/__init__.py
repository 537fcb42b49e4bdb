"""Reads Metal Shading Language, as token edits to other dialects of C++ need it."""
