"""The official wheel with another GPU half: only what depends on the card is compiled."""
