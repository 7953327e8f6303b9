"""A CUDA extension built for the torch and the cards that are here."""
