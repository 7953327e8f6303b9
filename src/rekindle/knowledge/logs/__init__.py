"""How causes show themselves in a log, and which fixes are mechanical."""
