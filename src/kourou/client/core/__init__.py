"""What producers and consumers share: connections, routes, settings, subscriptions."""
