"""What `.ci/mac quick` runs: every question that only a Mac can answer, into one file.

steps.py has the table of steps and their limits. A step is one or more processes, which running.py
starts, ends in time and starts again after what ended them; each says what it found item by item
(items.py), in the modules facts, texts, checks, suite, speed, choices and models. page.py makes the
page. rehearsal.py runs all of it on the simulated device, with each step made to fail.
"""
