"""What builds need and cost: profiles, limits, times, memory."""
