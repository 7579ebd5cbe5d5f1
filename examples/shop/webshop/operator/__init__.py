"""What the pages behind the counter read and change; the gateway serves it."""
