"""What this computer has: probes over an injected `Run`, a plain `Machine`, snapshots that replay anywhere."""
