"""What went over the wire, from socket calls to what messages were for, and clocks from it."""
