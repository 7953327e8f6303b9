"""From a plan to a wheel: environment, options, steps, the check, the journal."""
