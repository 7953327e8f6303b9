"""Script in, faults out: readers make a trace of what a script does, rules judge the trace."""
