"""A route carried out into an environment: what arrives is inspected, kept by constraints, and can be undone."""
