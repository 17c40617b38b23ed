"""Attribution of messages to the collectives that sent them."""
