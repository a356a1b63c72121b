"""What `aces bench` measures."""
