"""The command line: one module per verb. Each parses, calls one function, prints."""
