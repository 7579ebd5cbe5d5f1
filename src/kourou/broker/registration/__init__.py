"""Registration with name servers."""
