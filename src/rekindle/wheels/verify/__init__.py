"""Numbered checks of a wheel or of an installed torch."""
