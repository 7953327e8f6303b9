"""Which combination works and why the others do not: wishes, offers, rules, the resolver, plans."""
