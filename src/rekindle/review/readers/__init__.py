"""One reader per language: each turns a script into the same trace of commands and assignments."""
