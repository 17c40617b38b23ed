"""Connection between ranks beside their training: clocks, agreement, file transfer."""
