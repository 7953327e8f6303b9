"""Judgements: whether two things fit. One pure function for each pair, asked by every room."""
