"""What the commands of a session may reach: policies, and the sandboxes that enforce them."""
