"""What this computer has: small probes over an injected `Run`, a plain `Machine`, and snapshots that replay anywhere."""
