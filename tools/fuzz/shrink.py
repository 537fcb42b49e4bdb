"""Reduces a failing program to fewer steps."""

from dataclasses import replace


def shrink(program, fails):
    """Removes steps, also from functions, as long as ``fails(program)`` holds."""
    shorter = True
    while shorter:
        shorter = False
        for candidate in candidates(program.steps):
            smaller = replace(program, steps=candidate)
            if fails(smaller):
                program, shorter = smaller, True
                break
    return program


def candidates(steps):
    """The steps without one and its dependents, last ones first, or without one of a body."""
    for i in reversed(range(len(steps))):
        yield without(steps, i)
    for i in reversed(range(len(steps))):
        step = steps[i]
        if not step.body:
            continue
        for body_steps in candidates(step.body.steps):
            made = {n for inner in body_steps for n in inner.outputs}
            results = tuple(n for n in step.body.results if n in made)
            if results == step.body.results:
                body = replace(step.body, steps=body_steps, results=results)
                changed = replace(step, options=step.options | dict(body=body))
                yield (*steps[:i], changed, *steps[i + 1 :])


def without(steps, i):
    """The steps except one, and except those that use its results."""
    gone = set(steps[i].outputs)
    left = list(steps[:i])
    for step in steps[i + 1 :]:
        if step.taken & gone or step.options.get("value") in gone:
            gone |= set(step.outputs)
        else:
            left.append(step)
    return tuple(left)
