"""The same build for a matrix of releases, toolkits, cards, Pythons and systems, over many machines."""
