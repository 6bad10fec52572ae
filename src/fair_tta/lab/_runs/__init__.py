"""The one runner: pictures x settings -> answers in a store; engines; not what is made of them."""
