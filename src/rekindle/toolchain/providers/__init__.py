"""Where the parts of a toolchain come from. Every module here offers parts and fetches them; none unpacks."""
