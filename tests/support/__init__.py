"""What the tests of several rooms, and the tools, share."""
