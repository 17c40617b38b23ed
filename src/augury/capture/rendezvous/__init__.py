"""Connections between ranks for the recorder: rendezvous, clock handshakes, file transfer."""
