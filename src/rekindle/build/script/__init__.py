"""The same build as a script that needs no Rekindle."""
