"""How a sequence finds its expert: routes, their tokenizer, learned routers, routes chosen from the text."""
