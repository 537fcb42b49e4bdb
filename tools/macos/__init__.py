"""The macOS build, made and checked on any machine."""
