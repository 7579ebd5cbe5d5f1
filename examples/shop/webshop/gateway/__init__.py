"""The gateway: the shop's pages and the API behind them."""
