"""Push notification delivery: the outbox is drained, signed and sent (a2a-server.md, Push configs)."""
